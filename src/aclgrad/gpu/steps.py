"""The steps of a recurrence, launched one by one without Python in between.

A step is some products of the vendor's library and a kernel that takes the step's number. Each is a call of a C
function (`driver`), so that a table of calls runs them all. Where these functions are not to be found, Python calls
torch and Triton step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .driver import NotAsACall, Now, Words, library, require_success
from .launch import Kernel, Pointer, addresses_of, recording
from .launch_call import LaunchCall
from .products import LibraryProduct, multiply, product_call

if TYPE_CHECKING:
    from ..cpu.calls import Steps  # compiles with numba, which is imported when it is needed


def run_steps(
    kernel: Kernel, pointers: Sequence[Pointer], steps: int, products: Sequence[Sequence[LibraryProduct]] = ((),)
) -> None:
    """Launch the kernel for steps 0, 1, …, whose number it takes behind its pointers.

    Before each step but the first, the products of phase `step % len(products)` are made. Only those of a single phase
    may advance.
    """
    recorder = recording.recorder
    if recorder is not None:
        recorder.add(*step_calls(kernel, pointers, steps, products, recorder))
        return
    if library() is not None:
        from ..cpu.calls import CallTable

        try:
            parts, _alive = step_calls(kernel, pointers, steps, products, Now())
        except NotAsACall:
            pass
        else:
            require_success(CallTable(parts).run())
            return
    _python_steps(kernel, pointers, steps, products)


def step_calls(
    kernel: Kernel, pointers: Sequence[Pointer], steps: int, products: Sequence[Sequence[LibraryProduct]], words: Words
) -> tuple[list[Steps], LaunchCall]:
    """The same as parts of a table of calls, and the launch that they are made of."""
    from ..cpu.calls import Steps

    addresses, _ = addresses_of(pointers)
    launch = LaunchCall(kernel.loaded([*addresses, 0]), words, step=len(addresses))
    phases = [[*(product_call(product, words) for product in of_phase), launch.call] for of_phase in products]
    return [Steps([[launch.call]], launch.clock), Steps(phases, launch.clock, 1, steps)], launch


def _python_steps(
    kernel: Kernel, pointers: Sequence[Pointer], steps: int, products: Sequence[Sequence[LibraryProduct]]
) -> None:
    launch = kernel.fixed(*pointers)
    for step in range(steps):
        for product in products[step % len(products)] if step else ():
            a = product.a
            if product.advance:
                offset = a.storage_offset() + (step - 1) * product.advance
                a = a.as_strided(a.shape, a.stride(), offset)
            multiply(product.out, a, product.b, add=product.adds)
        launch(step)
