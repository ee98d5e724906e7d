"""Python functions → object code, by a reduced Numba: the same machine code in half the time.

Only imported to compile something.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llvmlite.binding import newpassmanagers
from numba import njit
from numba.core import compiler, ir, postproc, transforms, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.core.postproc import PostProcessor
from numba.core.registry import cpu_target
from numba.core.types.functions import BaseFunction
from numba.core.typing.context import BaseContext

from ..numba_start import uncollected
from . import straight


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


def part(function: Any) -> Any:
    """A function that native functions call, compiled in two thirds of the time of `njit`."""
    return njit(
        function, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True,
        pipeline_class=KernelCompiler,
    )  # fmt: skip


class KernelLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The LLVM side of Numba for code that goes to a file and is not run from Numba's memory.

    Numba optimises every function before it optimises the whole module, in order to save memory,
    and links the result into its engine, which never frees it. A kernel is one function, so the
    first round only has to bring variables into registers, as the module's passes expect. That
    saves 7 % of the CPU time of compiling a resize, a blur, a rotation, colour ops and a mean; the
    machine code hardly differs.
    """

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout
        passes = newpassmanagers.create_new_function_pass_manager()
        passes.add_sroa_pass()
        passes.add_simplify_cfg_pass()
        builder = self._codegen._pass_builder()
        for function in ll_module.functions:
            if not function.is_declaration:
                passes.run(function, builder)

    def _finalize_final_module(self) -> None:
        self._verify_declare_only_symbols()
        self._finalized = True

    def object_code(self) -> bytes:
        """The machine code of the whole module."""
        self.finalize()
        code: bytes = self._codegen._tm.emit_object(self._final_module)
        return code


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
    flags.no_compile = True  # `object_code` does that
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
    library = KernelLibrary(cpu_target.target_context.codegen(), function.__name__)
    with _quick(), global_compiler_lock:
        compiled = compiler.compile_extra(
            cpu_target.typing_context, cpu_target.target_context, function, signature.args,
            signature.return_type, flags, {}, library, pipeline_class=KernelCompiler,
        )  # fmt: skip
        return compiled.fndesc.llvm_func_name, library.object_code()


def compile_kernel(
    namespace: dict[str, Any], name: str, source: str, path: Path
) -> tuple[str, bytes]:
    """Symbol and object code of `name(table, begin, end)`, a function of a module's namespace."""
    runs = straight.shortened(source, str(path), name, namespace)
    try:
        return compile_native(namespace[name], types.void(types.int64, types.int64, types.int64))
    finally:
        for run in runs:
            run.forget()


@contextmanager
def _quick() -> Iterator[None]:
    """Make Numba compile faster inside the `with` block.

    NOTE [types once] To type `a + b`, Numba tries every overload of `+`, even those for strings
    and arrays, each time anew. That is 40 % of the compile time of a long kernel (hue, 286 lines:
    0.49 → 0.28 s). The type never changes for numbers, so we cache it. A name such as `f32` is
    looked up by way of an exception with a coloured message, and the variables of an instruction
    are found by a walk over all of its attributes, hundreds of thousands per kernel: see
    `_once_per_value` and `_variables` (together 11 % of the rest). After each pass, Numba finds the
    variables that are alive in each block, which it reads only for generators (5 %). We also
    disable the garbage collector, which walks Numba's many objects and finds little garbage (7 %).
    """
    patches = (
        (BaseFunction, "get_call_type", _once_per_types(BaseFunction.get_call_type)),
        (BaseContext, "resolve_value_type", _once_per_value(BaseContext.resolve_value_type)),
        (ir.Inst, "_rec_list_vars", _variables),
        (PostProcessor, "run", _without_live_variables(PostProcessor.run)),
    )
    slow = [getattr(owner, name) for owner, name, _ in patches]
    with uncollected():
        try:
            for owner, name, quick in patches:
                setattr(owner, name, quick)
            yield
        finally:
            for (owner, name, _), old in zip(patches, slow, strict=True):
                setattr(owner, name, old)


def _once_per_types(slow: Any) -> Any:
    """Numba's `get_call_type`, which remembers the types of operations on numbers."""

    def get_call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
        if kws or not all(isinstance(a, (types.Number, types.Boolean)) for a in args):
            return slow(self, context, args, kws)
        known = self.__dict__.setdefault("_ndd_known", {})
        found = known.get((context, *args))
        if found is None:
            found = known[context, *args] = slow(self, context, args, kws)
        return found

    return get_call_type


def _once_per_value(slow: Any) -> Any:
    """Numba's `resolve_value_type`, which remembers the globals of the kernel being compiled."""
    known: dict[int, tuple[Any, Any]] = {}  # id → value, which must stay alive, and its type

    def resolve_value_type(self: Any, value: Any) -> Any:
        found = known.get(id(value))
        if found is None:
            found = known[id(value)] = value, slow(self, value)
        return found[1]

    return resolve_value_type


def _without_live_variables(slow: Any) -> Any:
    """Numba's `PostProcessor.run`, which does not find the variables alive in each block."""

    def run(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
        function = self.func_ir
        if function.is_generator:
            slow(self, emit_dels, extend_lifetimes)
            return
        function.blocks = transforms.canonicalize_cfg(function.blocks)
        function.variable_lifetime = postproc.VariableLifetime(function.blocks)
        function.generator_info = None
        if emit_dels:
            self._insert_var_dels(extend_lifetimes=extend_lifetimes)

    return run


_LEAVES = frozenset({str, int, bool, type(None), ir.Loc})


def _variables(self: Any, value: Any) -> list[Any]:
    """Numba's `_rec_list_vars`, which does not call itself for attributes without variables."""
    kind = type(value)
    if kind is ir.Var:
        return [value]
    if isinstance(value, ir.Inst):
        found: list[Any] = value.list_vars()
        return found
    if not isinstance(value, (list, tuple, dict)):
        return []
    parts = value.values() if isinstance(value, dict) else value
    return [v for p in parts if type(p) not in _LEAVES for v in self._rec_list_vars(p)]
