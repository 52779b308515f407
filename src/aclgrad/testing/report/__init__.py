"""The report on somebody's outputs: what was found, and its forms for people and for machines."""
