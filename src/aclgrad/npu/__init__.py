"""npu: `import torch_npu` and `import acl` by their real names, and the device "npu", on any machine.

    python -m aclgrad.npu script.py                 runs a script for Ascend as it is
    pytest -p aclgrad.npu.pytest                    tests of code for Ascend
    aclgrad.npu.install() … aclgrad.npu.uninstall() the same inside a program

>>> import aclgrad.npu
>>> aclgrad.npu.is_installed()
False
"""

from ..frontends.npu.install import install, is_installed, uninstall

__all__ = ["install", "is_installed", "uninstall"]
