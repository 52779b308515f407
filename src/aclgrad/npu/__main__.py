"""`python -m aclgrad.npu script.py`: a script for Ascend, as it is."""

from ..frontends.npu.script import main

main()
