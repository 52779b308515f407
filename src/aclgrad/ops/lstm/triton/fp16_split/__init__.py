"""float32 products made of float16 products of the operands' high and low parts."""
