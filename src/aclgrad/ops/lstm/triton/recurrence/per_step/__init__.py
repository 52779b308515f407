"""A launch for every step."""
