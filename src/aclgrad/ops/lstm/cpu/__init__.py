"""The LSTM on a CPU: what the two passes share, and each idea of them side by side."""
