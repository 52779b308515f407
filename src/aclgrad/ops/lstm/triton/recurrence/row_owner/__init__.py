"""One launch for all steps of the gradient in float32: programs that own whole rows of the batch."""
