"""The ways in: one file or folder per door, written once for all operators."""
