"""The C ABI: C and C++ programs written for acl and aclnn, compiled and run unmodified.

    declarations  the C declarations of the runtime, as a table
    prototypes    the C signature of every function: the runtime's from that table, the operators' from their contracts
    headers       the header files, from prototypes and enumerations
    guards        the C functions a program links with: each hands its arguments to Python
    boot.c        how Python is started inside a C program, and how a guard calls it
    adapters      C arguments to the Python functions and their results back
    places        where in a program a call came from
    build         the compiled library with its headers, kept in a cache folder

A guard returns an error code whenever Python cannot answer: nothing that fails looks like success.
"""
