"""CPU kernels of linear cross entropy, one file for each operator; `choose.py` decides how a product is cut."""
