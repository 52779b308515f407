"""The aclnn door: two-phase functions made from the registry's contracts, and the executors between the phases.

executor    a plan with its operands: what phase one hands out and phase two consumes
operands    the tensors it computes with, and whether they are what they were
pairs       aclnnXxxGetWorkspaceSize and aclnnXxx for every operator
rebinding   repeatable executors and their addresses
"""
