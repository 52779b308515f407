"""The families of operators, one folder each: contract, reference, kernels, cases, documentation.

A family registers its contracts when it is imported, which `aclgrad/__init__.py` does, in one line for each.
"""
