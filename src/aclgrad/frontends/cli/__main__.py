"""`python -m aclgrad.frontends.cli`."""

from . import main

main()
