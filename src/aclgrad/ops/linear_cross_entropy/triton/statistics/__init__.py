"""Statistics of logits: inside the product that makes them, or in a pass over what the library made."""
