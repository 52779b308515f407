"""`python -m aclgrad`: the `aclgrad` command."""

from .frontends.cli import main

main()
