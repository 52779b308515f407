"""`python -m benchmarks plane`: sizes that nobody named, drawn at random, ours beside the peers at each of them.

Rows of the ordinary benchmark have names, and what has a name gets tuned. A user has sizes of their own.
"""
