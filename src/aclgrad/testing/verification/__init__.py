"""Somebody's outputs beside the truth."""
