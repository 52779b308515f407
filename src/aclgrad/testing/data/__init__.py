"""Calls as data: described, drawn, written as golden data, and read from dumps."""
