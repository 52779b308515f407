"""The conformance suite for anyone's kernel: numbers, borders, layouts, memory, determinism."""
