"""The families of operators, one folder each: contract, reference, kernels, cases, documentation."""
