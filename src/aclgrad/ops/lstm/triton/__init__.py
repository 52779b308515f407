"""The LSTM and its gradient on NVIDIA GPUs; README.md is the map."""
