"""Tensors as files: one tensor a file, and the folders in which the vendor's tools keep the tensors of a call."""
