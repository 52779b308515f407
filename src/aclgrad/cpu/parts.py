"""How numba compiles kernels, and the functions that they are made of: as parts, which only other compiled code calls.

numba makes three things of every function: LLVM's code, which its callers inline; a wrapper by which Python calls it;
and the machine code of both. It also optimises every function by itself, and again in each that calls it. Of a part
nothing but LLVM's code is ever used, so nothing else is made, and that is optimised once, where all of it has come
together: in the kernel. So a kernel takes half the time to compile.

A part that has to be inlined for a loop to become a vector loop says so (`compiler.inlined`): LLVM weighs every call
once, and leaves out large ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numba import _dynfunc
from numba.core import typed_passes as typed
from numba.core import untyped_passes as untyped
from numba.core.codegen import CPUCodeLibrary, JITCodeLibrary
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import LoweringPass, PassManager, register_pass

ENTRY = "cfunc."
"""How numba begins the name of the function by which C calls a kernel, all that anybody looks for by name."""


class _Unoptimised(CPUCodeLibrary):
    """LLVM's code as numba writes it."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _reached(self, seen: list[CPUCodeLibrary]) -> Iterator[CPUCodeLibrary]:
        """What it calls, directly and through other parts."""
        for library in self._linking_libraries:
            if library not in seen:
                seen.append(library)
                yield library
                if isinstance(library, _Part):
                    yield from library._reached(seen)


class _Part(_Unoptimised):
    """A function's own code. What it calls is added where a kernel is made."""

    def finalize(self) -> None:
        """There is nothing more to do."""
        self._finalized = True

    def own_module(self) -> Any:
        """Its code, such that a kernel may inline and then drop it."""
        return super()._get_module_for_linking()

    def _get_module_for_linking(self) -> Any:
        """For a function that numba compiles in its own way: with all that is reached."""
        whole = self.own_module().clone()
        for library in self._reached([self]):
            whole.link_in(_module(library), preserve=True)
        return whole


def _module(library: Any) -> Any:
    return library.own_module() if isinstance(library, _Part) else library._get_module_for_linking()


class _Kernel(_Unoptimised, JITCodeLibrary):
    """A kernel and all its parts, optimised together and given to the engine that makes machine code."""

    def finalize(self) -> None:
        """Link and optimise."""
        self._raise_if_finalized()
        self._codegen._check_llvm_bugs()
        for library in self._reached([]):
            self._final_module.link_in(_module(library), preserve=True)
        builder = self._codegen._pass_builder()
        builder.getModulePassManager().run(self._final_module, builder)
        self._keep_names_to_itself()
        self._final_module.verify()
        self._finalize_final_module()

    def _keep_names_to_itself(self) -> None:
        """Nobody else may call its parts, or have theirs called by their names.

        numba tells functions of one name apart by a number that counts those of a process. Two kernels that different
        processes have compiled, both loaded from disk, may have given one name to two parts; whichever was loaded first
        would be called by both.
        """
        for function in self._final_module.functions:
            if not function.is_declaration and not function.name.startswith(ENTRY):
                function.linkage = "internal"


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


class _Passes(PassManager):
    """Passes that leave numba's representation of a function in order, which is not checked after each of them."""

    _ENFORCING = False


_FRONT = (
    untyped.TranslateByteCode, untyped.FixupArgs, untyped.IRProcessing, untyped.RewriteSemanticConstants,
    untyped.DeadBranchPrune, untyped.GenericRewrites, untyped.ReconstructSSA, untyped.DeadBranchPrune,
    typed.NopythonTypeInference, typed.PreLowerStripPhis, typed.IRLegalization, typed.AnnotateTypes,
    typed.NativeLowering,
)  # fmt: skip
"""Those of numba's passes that kernels need: nothing is left out but what closures, generators and arrays need."""


class _Compiler(CompilerBase):
    """Compiles a function into a library of its own class, with few passes."""

    library_class: type[CPUCodeLibrary]
    further: tuple[type, ...] = ()

    def define_pipelines(self) -> list[Any]:
        """One pipeline, in which nothing falls back to Python."""
        state = self.state
        state.library = self.library_class(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        passes = _Passes("aclgrad")
        for step in (*_FRONT, *self.further, typed.NoPythonBackend):
            passes.add_pass(step, step.__name__)
        passes.finalize()
        return [passes]


class PartCompiler(_Compiler):
    """For parts."""

    library_class = _Part
    further = (_Callable,)

    def define_pipelines(self) -> list[Any]:
        """The same, without machine code."""
        self.state.flags.no_compile = True
        return super().define_pipelines()


class KernelCompiler(_Compiler):
    """For the C entries of kernels."""

    library_class = _Kernel


AS_A_PART: dict[str, Any] = {"pipeline_class": PartCompiler, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""What to tell numba of a part."""
