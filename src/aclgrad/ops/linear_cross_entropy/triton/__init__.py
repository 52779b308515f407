"""GPU kernels of linear cross entropy; `README.md` is the map."""
