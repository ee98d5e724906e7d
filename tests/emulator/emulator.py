"""The emulated CUDA driver: builds libcuda.so.1 with the system's compiler, loads it, compiles kernels for it.

`start()` must come before anything that looks for a driver. Whoever opens "libcuda.so.1" later gets
the library that is loaded already, because it has that name.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from tests.emulator import ptx
from tests.emulator.translate import PLAIN, Translated, translate

NATIVE = Path(__file__).parent / "native"
SOURCES = ("machine.c", "driver.c", "operations.c")


class _Segment(ctypes.Structure):
    _fields_ = [
        ("run", ctypes.c_void_p), ("kind", ctypes.c_int32), ("operation", ctypes.c_int32), ("next", ctypes.c_int32),
        ("count", ctypes.c_int32), ("operands", ctypes.c_int64 * 6),
    ]  # fmt: skip


class _Program(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        *((n, ctypes.c_int32) for n in ("arch", "n_segments", "n_slots", "n_params", "static_shared", "required_threads")),
        ("segments", ctypes.POINTER(_Segment)),
        *((n, ctypes.POINTER(ctypes.c_int32)) for n in ("param_offsets", "param_sizes", "lines")),
        ("n_accesses", ctypes.c_int32),
    ]  # fmt: skip


class Counters(ctypes.Structure):
    """What a launch has done: see `Counters` in emulator.h."""

    _fields_ = [
        (n, ctypes.c_uint64)
        for n in (
            "blocks", "thread_instructions", "warp_instructions", "lane_slots",
            "requests", "sectors", "unique_sectors", "bytes_requested",
        )
    ]  # fmt: skip


class _Record(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("counters", Counters)]


_COMPILER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)


def build() -> Path:
    """The library, compiled now or by an earlier call for the same source."""
    texts = [(NATIVE / name).read_bytes() for name in (*SOURCES, "emulator.h")]
    key = hashlib.sha256(b"".join(texts)).hexdigest()[:16]
    root = Path(os.environ.get("NDD_CACHE_DIR") or tempfile.gettempdir())
    library = root / "emulator" / key / "libcuda.so.1"
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    unfinished = library.with_name(f"{os.getpid()}.so")
    command = [os.environ.get("CC", "cc"), "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    command += [
        "-fvisibility=hidden",
        "-fno-strict-aliasing",
        "-Wl,-soname,libcuda.so.1",
        "-o",
        str(unfinished),
    ]
    made = subprocess.run(
        [*command, *SOURCES, "-ldl", "-lpthread", "-lm"], cwd=NATIVE, capture_output=True, text=True
    )
    if made.returncode:
        raise RuntimeError(f"the emulated driver does not compile:\n{made.stderr}")
    unfinished.rename(library)
    return library


class Emulator:
    """The loaded library, and what tests ask it."""

    def __init__(self, capabilities: tuple[int, ...]) -> None:
        path = build()
        self.library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        self.library.emu_fault.restype = ctypes.c_char_p
        self.library.emu_pending.restype = self.library.emu_calls.restype = ctypes.c_uint64
        self._counting = ctypes.c_int.in_dll(self.library, "emu_is_counting")
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.load_library_permanently(str(path))
        self._engine: Any = None
        self._programs: dict[bytes, _Program] = {}
        self._alive: list[Any] = []  # programs are never unloaded
        self.errors: list[BaseException] = []
        self.stacks: dict[
            tuple[str, int], int
        ] = {}  # kernel and architecture → bytes of local memory
        self._compiler = _COMPILER(self._compile)
        numbers = (ctypes.c_int * len(capabilities))(*capabilities)
        self.library.emu_setup(len(capabilities), numbers, self._compiler)

    # -- what tests ask ------------------------------------------------------------------------------

    @property
    def fault(self) -> str:
        """What the first illegal access or call since `clear` was; empty if there was none."""
        return self.library.emu_fault().decode()

    def clear(self) -> None:
        """Forget all faults, also those of contexts that no real driver would mend."""
        self.library.emu_clear_errors()
        self.errors.clear()

    @property
    def pending(self) -> int:
        """Pieces of work that were submitted and have not run."""
        return int(self.library.emu_pending())

    def calls(self, what: str) -> int:
        """Number of "launches", "copies" or "waits" since the start."""
        return int(self.library.emu_calls(("launches", "copies", "waits").index(what)))

    @contextmanager
    def eager(self) -> Iterator[None]:
        """Work runs when it is submitted, as if the GPU were always faster than the host."""
        self.library.emu_set_eager(1)
        try:
            yield
        finally:
            self.library.emu_set_eager(0)

    @contextmanager
    def counting(self) -> Iterator[list[tuple[str, Counters]]]:
        """Count instructions and sectors of memory; the list has a pair for each launch in the end."""
        found: list[tuple[str, Counters]] = []
        self.library.emu_clear_counters()
        self._counting.value = 1
        try:
            yield found
        finally:
            self._counting.value = 0
            count = ctypes.c_int.in_dll(self.library, "emu_n_records").value
            records = (_Record * 4096).in_dll(self.library, "emu_records")
            found += [
                (r.name.decode(), Counters.from_buffer_copy(r.counters)) for r in records[:count]
            ]

    def set_capability(self, device: int, capability: int) -> None:
        """Make a device one of another architecture."""
        self.library.emu_set_capability(device, capability)

    # -- kernels -------------------------------------------------------------------------------------

    def _compile(self, image: int, nbytes: int, name: bytes) -> int | None:
        """Called by the library; an error is kept, as it cannot pass through C."""
        try:
            cubin = ctypes.string_at(image, nbytes)
            program = self.program(ptx.from_cubin(cubin))
            if program.name != name:
                return None
            self.stacks[name.decode(), program.arch] = ptx.stack_bytes(cubin)
            return ctypes.addressof(program)
        except BaseException as error:
            self.errors.append(error)
            return None

    def program(self, text: str) -> _Program:
        """A kernel that the machine can run.

        A third of all kernels have the same code for several architectures, which is translated once.
        """
        code = text.partition(".section")[0]
        key = hashlib.sha256(code.encode()).digest()
        found = self._programs.get(key)
        if found is None:
            same = hashlib.sha256(ptx.without_target(code).encode()).digest()
            other = self._programs.get(same)
            if other is None:
                entry = ptx.parse(text)
                other = self._programs[same] = self._loaded(entry, translate(entry))
            found = self._programs[key] = _Program.from_buffer_copy(other)
            found.arch = ptx.architecture(code)
        return found

    def _loaded(self, entry: ptx.Entry, translated: Translated) -> _Program:
        module = llvm.parse_assembly(translated.assembly)
        if self._engine is None:
            # Without optimisation: compilation takes a fifth of the time, and kernels of tests are small.
            features = llvm.get_host_cpu_features().flatten()
            target = llvm.Target.from_default_triple()
            machine = target.create_target_machine(
                cpu=llvm.get_host_cpu_name(), features=features, opt=0
            )
            self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        # Names are unique in an engine.
        prefix = f"k{len(self._programs)}_"
        for function in module.functions:
            if not function.is_declaration:
                function.name = prefix + function.name
        self._engine.add_module(module)
        self._engine.finalize_object()
        segments = (_Segment * len(translated.segments))()
        for k, (made, segment) in enumerate(zip(segments, translated.segments)):
            if segment.kind == PLAIN:
                made.run = self._engine.get_function_address(f"{prefix}s{k}")
            made.kind, made.operation, made.next = segment.kind, segment.operation, segment.next
            made.count = len(segment.body)
            made.operands[:] = segment.operands

        def integers(values: list[int]) -> Any:
            array = (ctypes.c_int32 * max(len(values), 1))(*values)
            self._alive.append(array)
            return array

        params = list(entry.params.values())
        program = _Program(
            entry.name.encode(), entry.arch, len(segments), translated.n_slots, len(params), entry.static_shared,
            entry.required_threads, segments, integers([p[0] for p in params]), integers([p[1] for p in params]),
            integers(translated.lines), len(translated.lines),
        )  # fmt: skip
        self._alive += [module, segments]
        return program


_started: Emulator | None = None


def start(capabilities: tuple[int, ...] = (80, 120)) -> Emulator:
    """Load the driver into this process, once: a device for each compute capability."""
    global _started
    if _started is None:
        _started = Emulator(capabilities)
    return _started
