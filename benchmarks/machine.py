"""What a reader must know about the machine and the software, and a short name for the files of results."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import shutil
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

import aclgrad

from .device import Device

ROOT = Path(__file__).parents[1]
RATED = (torch.float32, torch.bfloat16, torch.float16)


def describe(device: Device) -> dict[str, Any]:
    """Device, measured rates, versions, date and revision."""
    return {
        **device.describe(),
        "copy_gb_s": device.copy_rate() / 1e9,
        "matmul_gflop_s": {str(dtype).removeprefix("torch."): device.matmul_rate(dtype) / 1e9 for dtype in RATED},
        "aclgrad": aclgrad.__version__,
        "torch": torch.__version__,
        "numba": importlib.metadata.version("numba"),
        "python": platform.python_version(),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "revision": _revision(),
    }


def slug(machine: dict[str, Any]) -> str:
    """For instance amd-epyc-2-cores-avx512 or nvidia-h200."""
    words = machine["name"]
    if machine["kind"] == "cpu":
        words += f" {machine['cores']} cores {machine['instructions']}"
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def title(machine: dict[str, Any]) -> str:
    """One line for people."""
    if machine["kind"] == "cuda":
        return (
            f"{machine['name']}, {machine['multiprocessors']} multiprocessors · "
            f"torch {machine['torch']}, Triton {machine['triton']} · "
            f"copy {machine['copy_gb_s'] / 1e3:.2f} TB/s, "
            f"bfloat16 matmul {machine['matmul_gflop_s']['bfloat16'] / 1e3:.0f} TFLOP/s"
        )
    return (
        f"{machine['name']}, {machine['threads']} threads, {machine['instructions']} · "
        f"torch {machine['torch']}, numba {machine['numba']} · "
        f"copy {machine['copy_gb_s']:.0f} GB/s, float32 matmul {machine['matmul_gflop_s']['float32']:.0f} GFLOP/s"
    )


def _revision() -> str:
    git = shutil.which("git")
    if git is None:
        return "unknown"
    command = [git, "-C", str(ROOT), "describe", "--always", "--dirty"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  fixed words
    return answer.stdout.strip() or "unknown"
