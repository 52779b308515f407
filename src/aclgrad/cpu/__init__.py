"""What CPU kernels are made of: compilation, threads, memory access, vector mathematics, loops over any layout.

Nothing here knows an operator.
"""
