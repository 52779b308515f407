"""The square of what is positive, and its gradient: a family of operators outside aclgrad."""

from . import spec as spec
