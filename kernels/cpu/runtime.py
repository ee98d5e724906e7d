"""KernelSpec → Numba source → machine code, as a function that threads call without the GIL.

NOTE [objects, not dispatchers] We compile the bare native function (no Python wrapper, no
reference counting) and keep its object file. Loading one takes 1 ms and needs only llvmlite, so a
process with a warm cache never imports Numba. Importing Numba takes 1.4 s, and all of ndd 0.2 s.
"""

from __future__ import annotations

import ctypes
import os
import platform
import weakref
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from ..common import background, trace
from ..common.disk_cache import (
    cache_dir,
    cached_object,
    digest,
    is_usable,
    package_version,
    write_atomically,
)
from ..common.memo import Memo, memoized
from ..ir.spec import KernelSpec
from . import helpers as cpu_helpers
from . import numba_start
from . import render as cpu

_TYPES = (
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)  # fmt: skip
_ENTRY = ctypes.CFUNCTYPE(*_TYPES)
_BRIEF_ENTRY = ctypes.PYFUNCTYPE(*_TYPES)  # keeps the interpreter's lock
# Characters of a kernel's name. Profilers print it on one line with their numbers.
MAX_NAME = 80
DIGITS = 8  # of the digest in a name
# The caller that runs a kernel holds a reference, so evicting it here does not unload its code. A
# kernel that was evicted is loaded from disk again.
_kernels: Memo[KernelSpec, CpuKernel] = Memo("CPU kernels", 4096)
# Kernels that `is_compiled` has looked for once.
_missed: Memo[KernelSpec, bool] = Memo("CPU kernels that were missing", 4096)
_engines: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # by address
compile_count = 0  # how many kernels this process compiled; tests assert on it


class CpuKernel:
    """A compiled kernel; call it as `run(table_address, first_row, end_row)`.

    `run_briefly` does the same and keeps the interpreter's lock, so that no other thread takes over
    for work of a few microseconds.
    """

    __slots__ = ("address", "name", "run", "run_briefly", "source_path")

    def __init__(self, name: str, source_path: Path, engine: Any, address: int) -> None:
        self.name = name
        self.source_path = source_path
        self.address = address
        self.run = native(engine, address)
        self.run_briefly = native(engine, address, _BRIEF_ENTRY)


def native(engine: Any, address: int, kind: Any = _ENTRY) -> Callable[[int, int, int], int]:
    """Native code as a Python function of three numbers, which keeps the code alive.

    By Numba's calling convention it returns a status and takes two out-pointers first, for the
    result (void) and for the exception (our kernels raise none). The code writes to both.
    """
    entry: Any = kind(address)
    entry.engine = engine  # owns the code
    return partial(entry, ctypes.byref(ctypes.c_void_p()), ctypes.byref(ctypes.c_void_p()))


def get_kernel(spec: KernelSpec) -> CpuKernel:
    """The compiled kernel of a spec: from memory, from disk, or compiled now."""
    found = _kernels.get(spec)
    return _build(spec) if found is None else found


def kernel_name(spec: KernelSpec, source: str) -> str:
    """`flip_cast__u8_f32__3fa9c1d2`: the ops, the types in and out, and a digest."""
    return f"{kernel_stem(spec)}__{digest(source, length=DIGITS)}"


def kernel_stem(spec: KernelSpec) -> str:
    """`flip_cast__u8_f32`: the ops, and the types in and out."""
    ops = list(dict.fromkeys(op.replace(".", "_").replace("+", "_") for op in spec.ops))
    ins = "".join(dict.fromkeys(f"{a.dtype}" for a in spec.loads if not a.is_scalar)) or "const"
    outs = "".join(dict.fromkeys(f"{a.dtype}" for a in spec.stores))
    types = f"__{ins}_{outs}"
    return shortened(ops, MAX_NAME - len(types) - len("__") - DIGITS) + types


def shortened(ops: list[str], room: int) -> str:
    """The ops of a name; a long chain keeps its first ops, a count of the others, and its last."""
    text = "_".join(ops)
    for first in range(len(ops) - 2, 0, -1):
        if len(text) <= room:
            break
        text = "_".join([*ops[:first], f"and_{len(ops) - first - 1}_more", ops[-1]])
    return text


@memoized(4096)
def kernel_file(spec: KernelSpec, on_gpu: bool) -> str:
    """Name of a spec's kernel and of its files; does not build the kernel."""
    if on_gpu:
        from ..gpu import render as gpu

        return kernel_name(spec, gpu.render(spec, "kernel"))
    return kernel_name(spec, cpu.render(spec, "kernel"))


def _build(spec: KernelSpec) -> CpuKernel:
    name = kernel_file(spec, False)
    if trace.active:
        stage = trace.begin("compile", name)
        return trace.during(stage, background.uninterrupted, _made, spec, name)
    return background.uninterrupted(_made, spec, name)


def _made(spec: KernelSpec, name: str) -> CpuKernel:
    """The kernel of a spec, made by the first thread that asks for it."""
    with cpu_helpers.compiling:
        found = _kernels.get(spec)
        if found is None:
            found = _kernels[spec] = _make(spec, name)
        return found


def _make(spec: KernelSpec, name: str) -> CpuKernel:
    """Compile a kernel, or load it from disk."""
    source = cpu.render(spec, name)
    if "codegen" in os.environ.get("NDD_DEBUG", ""):
        print(source)
    engine, address = link(*stored(name, source))
    return CpuKernel(name, _source_path(name), engine, address)


def stored(name: str, source: str) -> tuple[str, bytes]:
    """Symbol and code of a kernel: from disk, or compiled now. Its helpers are loaded, too."""

    def compiled() -> tuple[str, bytes]:
        write_atomically(_source_path(name), source.encode())
        return _compile(source, name, _source_path(name))

    kept = cached_object(_object_path(name), source, compiled)
    # Last, because another process may be compiling the helpers meanwhile (compile_ahead.py).
    cpu_helpers.ensure(cpu_helpers.names_in(source), machine(), link)
    return kept


def is_compiled(spec: KernelSpec) -> bool:
    """Whether a kernel is in memory or on disk, so that `get_kernel` need not compile it.

    The name of its file has a digest of its source, which takes 5 to 15 ms to write. So the first
    question is whether there is any kernel of the same ops and types: mostly, there is none.
    """
    if _kernels.get(spec) is not None:
        return True
    if spec not in _missed and not _is_stem_known(kernel_stem(spec)):
        _missed[spec] = True
        return False
    path = _object_path(kernel_file(spec, False))
    return path.exists() and is_usable(path.parent)


def _is_stem_known(stem: str) -> bool:
    """Whether the cache has compiled kernels of these ops and types."""
    begin, end = f"{stem}__", f".{machine()}.o"
    try:
        with os.scandir(cache_dir() / "cpu") as files:
            return any(f.name.startswith(begin) and f.name.endswith(end) for f in files)
    except OSError:
        return False


def note_wish(spec: KernelSpec) -> bool:
    """Leave a mark, for later processes, that a kernel of these ops and types is wanted.

    Returns whether there was one.
    """
    path = cache_dir() / "cpu" / f"{kernel_stem(spec)}.wish"
    if path.exists():
        return is_usable(path.parent)
    write_atomically(path, b"")
    return False


def _source_path(name: str) -> Path:
    return cache_dir() / "cpu" / f"{name}.py"


def _object_path(name: str) -> Path:
    return cache_dir() / "cpu" / f"{name}.{machine()}.o"


@cache
def machine() -> str:
    """Digest of everything besides its source that object code depends on: CPU, compiler, ndd."""
    with cpu_helpers.compiling:
        import llvmlite.binding as llvm

        host = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    versions = package_version("numba"), package_version("llvmlite")
    own = (file.read_bytes() for file in baked_files())
    return digest(*host, *versions, platform.machine(), *own)


def baked_files() -> list[Path]:
    """Every file whose constants may be in object code.

    Helpers and primitives use constants of many modules, and a list of those would soon be wrong.
    So this is every file that they can import; reading them takes 1 ms, once per process.
    """
    kernels = Path(__file__).parents[1]
    return [f for room in ("common", "cpu", "ir") for f in sorted((kernels / room).rglob("*.py"))]


def _compile(source: str, name: str, path: Path) -> tuple[str, bytes]:
    global compile_count
    compile_count += 1
    numba_start.load()
    from .native.compile import compile_kernel

    namespace: dict[str, Any] = {"__name__": f"ndd_generated.{name}"}
    exec(compile(source, str(path), "exec"), namespace)
    return compile_kernel(namespace, name, source, path)


def new_target() -> Any:
    """An LLVM target for this machine; an engine takes ownership of it, so each needs a new one."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(jit=True)


def link(symbol: str, code: bytes) -> tuple[Any, int]:
    """Load object code; returns the engine that owns it, and the address of the symbol."""
    import llvmlite.binding as llvm

    target = new_target()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(symbol)
    if not address:
        raise RuntimeError(f"kernel object has no symbol {symbol!r}")
    _engines[address] = engine
    return engine, address


@background.before_exit
def _keep_code() -> None:
    """Detach all engines at exit, so that llvmlite does not unload their code.

    If a thread first imports llvmlite while the process is ending, llvmlite misses the shutdown,
    tries to unload kernels, and fails with a message.
    """
    for engine in list(_engines.values()):
        engine.detach()
