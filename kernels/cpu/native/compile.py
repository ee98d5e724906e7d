"""Python functions → object code, by a reduced Numba: the same machine code in half the time.

Only imported to compile something.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import compiler, types
from numba.core.compiler_machinery import PassManager
from numba.core.registry import cpu_target
from numba.core.types.functions import BaseFunction


class KernelCompiler(compiler.CompilerBase):  # type: ignore[misc]
    """Numba's passes without those for closures, containers and arrays, which kernels lack."""

    _PASSES = (
        compiler.TranslateByteCode, compiler.FixupArgs, compiler.IRProcessing,
        compiler.InlineInlinables, compiler.ReconstructSSA, compiler.NopythonTypeInference,
        compiler.PreLowerStripPhis, compiler.IRLegalization, compiler.NativeLowering,
        compiler.NoPythonBackend,
    )  # fmt: skip

    def define_pipelines(self) -> list[PassManager]:
        passes = PassManager("ndd")
        for step in self._PASSES:
            passes.add_pass(step, step.name())
        passes.finalize()
        return [passes]


def compile_native(function: Any, signature: Any) -> tuple[str, bytes]:
    """Symbol and object code of a function, without wrappers for Python or C.

    The compiled function returns a status and takes two out-pointers before its arguments, for the
    result (void) and for the exception (our functions raise none).
    """
    flags = compiler.Flags()
    flags.nrt = False
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = True
    flags.error_model = "numpy"  # x / 0 is inf, not an exception
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
    with _quick():
        compiled = compiler.compile_extra(
            cpu_target.typing_context, cpu_target.target_context, function, signature.args,
            signature.return_type, flags, {}, pipeline_class=KernelCompiler,
        )  # fmt: skip
        return compiled.fndesc.llvm_func_name, compiled.library._get_compiled_object()


def compile_kernel(function: Any) -> tuple[str, bytes]:
    """Symbol and object code of `function(table, begin, end)`."""
    return compile_native(function, types.void(types.int64, types.int64, types.int64))


@contextmanager
def _quick() -> Iterator[None]:
    """Make Numba compile faster inside the `with` block.

    NOTE [types once] To type `a + b`, Numba tries every overload of `+`, even those for strings
    and arrays, each time anew. That is 40 % of the compile time of a long kernel (hue, 286 lines:
    0.49 → 0.28 s). The type never changes for numbers, so we cache it. We also disable the garbage
    collector, which walks Numba's many objects and finds little garbage (another 7 %).
    """
    slow, collected = BaseFunction.get_call_type, gc.isenabled()

    def get_call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
        if kws or not all(isinstance(a, (types.Number, types.Boolean)) for a in args):
            return slow(self, context, args, kws)
        known = self.__dict__.setdefault("_ndd_known", {})
        found = known.get((context, *args))
        if found is None:
            found = known[context, *args] = slow(self, context, args, kws)
        return found

    BaseFunction.get_call_type = get_call_type  # type: ignore[method-assign]
    gc.disable()
    try:
        yield
    finally:
        BaseFunction.get_call_type = slow  # type: ignore[method-assign]
        if collected:
            gc.enable()
