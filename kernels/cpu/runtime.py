"""Numba source → machine code → a function that Python threads can call without the GIL.

NOTE [objects, not dispatchers] We compile the bare native function (no Python wrapper, no
reference counting) and keep its object file. Loading one takes 1 ms and needs only llvmlite, so a
process with a warm cache never imports Numba at all, whose import alone takes longer than all of
ours (measured: 1.4 s against 0.2 s).
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import threading
import weakref
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from ..common import trace
from ..common.disk_cache import (
    cache_dir,
    digest,
    load_object,
    package_version,
    store_object,
    write_atomically,
)
from ..common.memo import Memo, memoized
from ..ir.spec import KernelSpec
from . import helpers as cpu_helpers
from . import render as cpu

_ENTRY = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)
# Characters of a kernel's name: profilers list it beside their numbers, on one line.
MAX_NAME = 80
_lock = threading.Lock()
# Whoever runs a kernel holds it, so that its code stays; what is forgotten is loaded from disk.
_kernels: Memo[KernelSpec, CpuKernel] = Memo("CPU kernels", 4096)
_engines: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # by their address
compile_count = 0  # how many kernels this process compiled; tests assert on it


class CpuKernel:
    """A compiled kernel: `run(table_address, first_row, end_row)`."""

    __slots__ = ("address", "name", "run", "source_path")

    def __init__(self, name: str, source_path: Path, engine: Any, address: int) -> None:
        self.name = name
        self.source_path = source_path
        self.address = address
        self.run = native(engine, address)


def native(engine: Any, address: int) -> Callable[[int, int, int], int]:
    """Native code as a function of three numbers, which owns all that a call needs.

    Numba's convention returns a status and takes two out-pointers before the arguments: the result
    (void) and the exception (our kernels raise none). Both are written to.
    """
    entry: Any = _ENTRY(address)
    entry.engine = engine  # owns the code
    return partial(entry, ctypes.byref(ctypes.c_void_p()), ctypes.byref(ctypes.c_void_p()))


def get_kernel(spec: KernelSpec) -> CpuKernel:
    """The compiled kernel of a spec, from memory, from disk, or made now."""
    found = _kernels.get(spec)
    if found is None:
        with _lock:
            found = _kernels.get(spec)
            if found is None:
                found = _kernels[spec] = _build(spec)
    return found


def kernel_name(spec: KernelSpec, source: str) -> str:
    """`flip_cast__u8_f32__3fa9c1d2`: the ops, the types in and out, and a digest."""
    ops = list(dict.fromkeys(op.replace(".", "_").replace("+", "_") for op in spec.ops))
    ins = "".join(dict.fromkeys(f"{a.dtype}" for a in spec.loads if not a.is_scalar)) or "const"
    outs = "".join(dict.fromkeys(f"{a.dtype}" for a in spec.stores))
    tail = f"__{ins}_{outs}__{digest(source)}"
    return shortened(ops, MAX_NAME - len(tail)) + tail


def shortened(ops: list[str], room: int) -> str:
    """The ops of a name; of a long chain the first ones, how many more, and the last one."""
    text = "_".join(ops)
    for first in range(len(ops) - 2, 0, -1):
        if len(text) <= room:
            break
        text = "_".join([*ops[:first], f"and_{len(ops) - first - 1}_more", ops[-1]])
    return text


@memoized(4096)
def kernel_file(spec: KernelSpec, on_gpu: bool) -> str:
    """Name of a spec's kernel and of its files, without building it."""
    if on_gpu:
        from ..gpu import render as gpu

        return kernel_name(spec, gpu.render(spec, "kernel"))
    return kernel_name(spec, cpu.render(spec, "kernel"))


def _build(spec: KernelSpec) -> CpuKernel:
    name = kernel_file(spec, False)
    if trace.active:
        made: CpuKernel = trace.during(trace.begin("compile", name), _make, spec, name)
        return made
    return _make(spec, name)


def _make(spec: KernelSpec, name: str) -> CpuKernel:
    """Compile a kernel, or load it from disk."""
    source = cpu.render(spec, name)
    folder = cache_dir() / "cpu"
    source_path = folder / f"{name}.py"
    object_path = folder / f"{name}.{machine()}.o"
    if "codegen" in os.environ.get("NDD_DEBUG", ""):
        print(source)
    kept, helpers = load_object(object_path, source), cpu_helpers.names_in(source)
    if kept is None:
        write_atomically(source_path, source.encode())
        cpu_helpers.promise(helpers)
        kept = _compile(source, name, source_path)
        store_object(object_path, source, *kept)
    # last, because others may be compiling them (kernels/cpu/ahead.py)
    cpu_helpers.ensure(helpers, machine(), link)
    engine, address = link(*kept)
    return CpuKernel(name, source_path, engine, address)


@cache
def machine() -> str:
    """Names what object code depends on besides the kernel's text: CPU, compiler, our source."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features().flatten()
    versions = package_version("numba"), package_version("llvmlite")
    own = (file.read_bytes() for file in baked_files())
    return digest(llvm.get_host_cpu_name(), features, *versions, platform.machine(), *own)


def baked_files() -> list[Path]:
    """Every file whose constants may be in object code.

    Helpers and primitives use constants of many modules, and nobody could keep a list of those. So
    all files count that they can import: reading them takes 1 ms, once per process.
    """
    kernels = Path(__file__).parents[1]
    return [f for room in ("common", "cpu", "ir") for f in sorted((kernels / room).rglob("*.py"))]


def _compile(source: str, name: str, path: Path) -> tuple[str, bytes]:
    global compile_count
    compile_count += 1
    from .native.compile import compile_kernel

    namespace: dict[str, Any] = {"__name__": f"ndd_generated.{name}"}
    exec(compile(source, str(path), "exec"), namespace)
    return compile_kernel(namespace[name])


def new_target() -> Any:
    """This machine, for LLVM; belongs to the engine that takes it, so that each gets its own."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(jit=True)


def link(symbol: str, code: bytes) -> tuple[Any, int]:
    """Load compiled code: the engine that owns it, and where the symbol is."""
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


@atexit.register
def _keep_code() -> None:
    """Do not unload kernels at exit. llvmlite would do so, and fail with a message, if a thread
    imported it first while the process was ending: then it does not know that it is."""
    for engine in list(_engines.values()):
        engine.detach()
