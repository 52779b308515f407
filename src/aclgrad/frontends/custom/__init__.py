"""Operators from outside: families in packages of their own, found when aclgrad is imported.

discovery        which packages there are, and what they have to have
shared_library   kernels and formulas in C, C++ or anything else that a shared library is made from
kernel.h         what such a function gets; it is among the headers as aclgrad/kernel.h
"""
