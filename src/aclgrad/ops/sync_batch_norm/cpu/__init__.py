"""CPU kernels of synchronised batch norm, one file for each idea."""
