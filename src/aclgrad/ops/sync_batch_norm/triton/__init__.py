"""GPU kernels of synchronised batch norm; `README.md` is the map."""
