"""Mathematics with two users or more."""
