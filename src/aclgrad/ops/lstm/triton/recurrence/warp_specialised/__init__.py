"""One launch for all steps in float32: producer and consumer warps, for a large batch."""
