"""How far a tensor is from the truth: metrics, the places of errors, and standards that are verdicts over them."""
