"""How numba compiles the functions that kernels are made of: as parts, which only other compiled code calls.

numba makes three things of every function: LLVM's code, which its callers inline; a wrapper by which Python calls it;
and the machine code of both. Of a part nothing but LLVM's code is ever used, so nothing else is made, which takes a
third to a half off the time that a kernel takes to compile.
"""

from __future__ import annotations

from typing import Any

from numba import _dynfunc
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.typed_passes import NativeLowering


class _Part(CPUCodeLibrary):
    """Optimised and ready to be linked into its callers, but not given to the engine that makes machine code."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


@register_pass(mutates_CFG=False, analysis_only=False)
class _Callable(LoweringPass):
    """Let compiled code call the part that was lowered. From Python it has no address, as without a wrapper."""

    _name = "aclgrad_part"

    def __init__(self) -> None:
        LoweringPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Do what numba does with a function's address."""
        lowered = state.cr
        name = lowered.fndesc.qualname
        function = _dynfunc.make_function(lowered.fndesc.lookup_module(), name, name, 0, lowered.env, (state.library,))
        state.targetctx.insert_user_function(function, lowered.fndesc, [state.library])
        state["cr"] = lowered._replace(cfunc=function)
        return True


class PartCompiler(CompilerBase):
    """numba's own passes; see above."""

    def define_pipelines(self) -> list[Any]:
        """One pipeline, in which nothing falls back to Python."""
        state = self.state
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        state.flags.no_compile = True
        passes = DefaultPassBuilder.define_nopython_pipeline(state)
        passes.add_pass_after(_Callable, NativeLowering)
        passes.finalize()
        return [passes]


AS_A_PART: dict[str, Any] = {"pipeline_class": PartCompiler, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""What to tell numba of a part."""
