"""`python -m aclgrad.npu script.py`: a script, a folder or a module for Ascend, run as Python runs it."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from .install import install


def main() -> None:
    """Install the device and the modules, and run what the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m aclgrad.npu",
        description="Run a program for Ascend as it is: `import torch_npu`, `import acl` and device='npu' work.",
        epilog="ACLGRAD_DEVICE=cuda keeps the tensors on a GPU, ACLGRAD_SOC names the chip that is imitated.",
    )
    parser.add_argument("-m", dest="is_module", action="store_true", help="the program is a module, not a file")
    parser.add_argument("program", help="a file, a folder with a __main__.py, or with -m a module")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="the program's own arguments")
    asked = parser.parse_args()
    if not asked.is_module and not Path(asked.program).exists():
        parser.error(f"program is {asked.program!r}, expected a file that exists")
    install()
    sys.argv = [asked.program, *asked.args]
    if asked.is_module:
        runpy.run_module(asked.program, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(asked.program).resolve().parent)
        runpy.run_path(asked.program, run_name="__main__")
