"""What GPU kernels are made of: launching Triton functions with little host work, elementary functions, layouts."""
