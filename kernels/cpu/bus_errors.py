"""Files that are mapped into memory, of which somebody may cut off the end at any time.

The system answers a look at a page that a file has lost by SIGBUS, which ends the process. Our
handler puts a page of zeros in its place, notes that in the table of maps and goes on; who reads
the map asks afterwards whether anything was lost. A SIGBUS elsewhere goes to the handler that was
there before.

Handlers may run between any two instructions of any thread, so this one is native code. It calls
nothing but system calls, takes no lock, and reads a table whose memory never moves. We write its
LLVM instructions directly: they compile in a few milliseconds.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import signal
from collections.abc import Callable
from ctypes import POINTER, Structure, byref, c_int, c_int64, c_long, c_size_t, c_uint8, c_void_p
from typing import Any

import numpy as np

from ..common import forks
from ..common.memo import memoized
from .helpers import compiling
from .runtime import link, native, new_target

Array = np.ndarray[Any, Any]

# Each map keeps its file open, and processes may often open only 1024.
MAPS = 256
PAGE = mmap.PAGESIZE
_MAP_FIXED = 0x10  # Python's `mmap` does not have it
_SA_SIGINFO, _SA_ONSTACK, _SA_NODEFER = 4, 0x08000000, 0x40000000
_FAILED = 2**64 - 1
NOT_LOST = np.iinfo(np.int64).max


class _Action(Structure):
    """C's `struct sigaction`."""

    _fields_ = (
        ("handler", c_void_p), ("mask", c_uint8 * 128), ("flags", c_int), ("restorer", c_void_p),
    )  # fmt: skip


# What the handler knows. None of this memory is ever freed, because it may run at any time.
# `_chain`: how many foreign signals are being passed on, then the handler that we replaced last and
# its flags, then those of the first one that we replaced.
_chain: Array = np.zeros(5, np.int64)
_default = _Action()  # the system's own answer to a signal
_maps: Array = np.zeros((MAPS, 3), np.int64)  # begin, end, the lowest page that was lost
_free = [*range(MAPS)]
_is_installed: list[bool] = []
_lock = forks.lock()

_SOURCE = """
define void @ndd_on_bus_error(i32 %signal, ptr %info, ptr %context) {{
begin:
  %code_at = getelementptr i8, ptr %info, i64 8
  %code = load i32, ptr %code_at
  %address_at = getelementptr i8, ptr %info, i64 16
  %address = load i64, ptr %address_at
  %is_from_system = icmp sgt i32 %code, 0
  br i1 %is_from_system, label %next, label %foreign
next:
  %k = phi i64 [0, %begin], [%k_after, %other]
  %is_over = icmp eq i64 %k, {maps}
  br i1 %is_over, label %foreign, label %look
look:
  %k_after = add i64 %k, 1
  %offset = mul i64 %k, 24
  %row = add i64 %offset, {table}
  %first_at = inttoptr i64 %row to ptr
  %first = load volatile i64, ptr %first_at
  %last_at = getelementptr i64, ptr %first_at, i64 1
  %last = load volatile i64, ptr %last_at
  %is_behind = icmp uge i64 %address, %first
  %is_before = icmp ult i64 %address, %last
  %is_ours = and i1 %is_behind, %is_before
  br i1 %is_ours, label %replace, label %other
other:
  br label %next
replace:
  %page = and i64 %address, -{page}
  %lost_at = getelementptr i64, ptr %first_at, i64 2
  %ignored = atomicrmw umin ptr %lost_at, i64 %page seq_cst
  %mmap = inttoptr i64 {mmap} to ptr
  %made = call i64 %mmap(i64 %page, i64 {page}, i32 {access}, i32 {anonymous}, i32 -1, i64 0)
  %is_made = icmp eq i64 %made, %page
  br i1 %is_made, label %end, label %foreign
foreign:
  %chain = inttoptr i64 {chain} to ptr
  %depth = atomicrmw add ptr %chain, i64 1 seq_cst
  %is_first = icmp eq i64 %depth, 0
  %number = select i1 %is_first, i64 1, i64 3
  %handler_at = getelementptr i64, ptr %chain, i64 %number
  %handler = load i64, ptr %handler_at
  %flags_at = getelementptr i64, ptr %handler_at, i64 1
  %flags = load i64, ptr %flags_at
  %is_function = icmp ugt i64 %handler, 1
  br i1 %is_function, label %pass, label %give_up
pass:
  %function = inttoptr i64 %handler to ptr
  %wants = and i64 %flags, {siginfo}
  %is_long = icmp ne i64 %wants, 0
  br i1 %is_long, label %pass_all, label %pass_number
pass_all:
  call void %function(i32 %signal, ptr %info, ptr %context)
  br label %passed
pass_number:
  call void %function(i32 %signal)
  br label %passed
give_up:
  %sigaction = inttoptr i64 {sigaction} to ptr
  %default = inttoptr i64 {default} to ptr
  %set = call i32 %sigaction(i32 %signal, ptr %default, ptr null)
  %raise = inttoptr i64 {raise_} to ptr
  br i1 %is_from_system, label %passed, label %send
send:
  %sent = call i32 %raise(i32 %signal)
  br label %passed
passed:
  %left = atomicrmw sub ptr %chain, i64 1 seq_cst
  br label %end
end:
  ret void
}}

define i32 @ndd_touch_pages(ptr %a, ptr %b, i64 %begin, i64 %end, i64 %step) {{
start:
  br label %next
next:
  %at = phi i64 [%begin, %start], [%after, %touch]
  %is_left = icmp ult i64 %at, %end
  br i1 %is_left, label %touch, label %done
touch:
  %place = inttoptr i64 %at to ptr
  %byte = load volatile i8, ptr %place
  %after = add i64 %at, %step
  br label %next
done:
  ret i32 0
}}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define i32 @ndd_copy_parts(ptr %a, ptr %b, i64 %rows, i64 %count, i64 %unused) {{
start:
  br label %next
next:
  %k = phi i64 [0, %start], [%after, %copy]
  %is_left = icmp ult i64 %k, %count
  br i1 %is_left, label %copy, label %done
copy:
  %after = add i64 %k, 1
  %offset = mul i64 %k, 24
  %row = add i64 %rows, %offset
  %from_at = inttoptr i64 %row to ptr
  %from = load ptr, ptr %from_at
  %to_at = getelementptr i64, ptr %from_at, i64 1
  %to = load ptr, ptr %to_at
  %size_at = getelementptr i64, ptr %from_at, i64 2
  %size = load i64, ptr %size_at
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %size, i1 false)
  br label %next
done:
  ret i32 0
}}
"""


@memoized(1)
def _libc() -> Any:
    """The functions of C that we need, with their types."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = c_size_t
    libc.mmap.argtypes = (c_void_p, c_size_t, c_int, c_int, c_int, c_long)
    libc.munmap.argtypes = (c_void_p, c_size_t)
    libc.sigaction.argtypes = (c_int, POINTER(_Action), POINTER(_Action))
    return libc


@memoized(1)
def _code() -> tuple[int, Callable[[int, int, int], int], Callable[[int, int, int], int]]:
    """The address of the handler, and the functions `touch_pages` and `copy_parts`."""
    libc = _libc()

    def address(function: Any) -> int:
        return ctypes.cast(function, c_void_p).value or 0

    source = _SOURCE.format(
        maps=MAPS, table=_maps.ctypes.data, page=PAGE, chain=_chain.ctypes.data,
        default=ctypes.addressof(_default), siginfo=_SA_SIGINFO,
        access=mmap.PROT_READ | mmap.PROT_WRITE,
        anonymous=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED,
        mmap=address(libc.mmap), sigaction=address(libc.sigaction), raise_=address(libc["raise"]),
    )  # fmt: skip
    with compiling:
        import llvmlite.binding as llvm

        target = new_target()
        code = target.emit_object(llvm.parse_assembly(source))
        engine, handler = link("ndd_on_bus_error", code)
        touch, copy = map(engine.get_function_address, ("ndd_touch_pages", "ndd_copy_parts"))
    return handler, native(engine, touch), native(engine, copy)


def protect() -> None:
    """Make ours the handler of SIGBUS, if it is not; call this before looking at maps.

    Others may have taken its place since (`faulthandler.enable()`). Then it goes on top of theirs.
    If theirs gives the signal back to ours, that passes it to the first one that it has replaced.
    """
    libc, handler, now = _libc(), _code()[0], _Action()
    libc.sigaction(signal.SIGBUS, None, byref(now))
    if now.handler == handler:
        return
    with _lock:
        before = (now.handler or 0, now.flags)
        _chain[1:3] = before
        if not _is_installed:
            _chain[3:5] = before
            _is_installed.append(True)
        ours = _Action(handler=handler, flags=_SA_SIGINFO | _SA_ONSTACK | _SA_NODEFER)
        libc.sigaction(signal.SIGBUS, byref(ours), None)


class FileMap:
    """A file in memory, for reading, until nobody holds it."""

    def __init__(self, descriptor: int, nbytes: int) -> None:
        """OSError if there is no room for another map."""
        self._row = -1
        with _lock:
            if not _free:
                raise OSError(errno.EMFILE, "too many maps")
            made = _libc().mmap(None, nbytes, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
            if made == _FAILED:
                raise OSError(ctypes.get_errno(), "mmap")
            self.address, self.nbytes = made, nbytes
            self._row = _free.pop()
            # The end comes last: until then the handler does not look at the row.
            row = _maps[self._row]
            row[0], row[2] = made, NOT_LOST
            row[1] = made + nbytes

    def lost_from(self) -> int:
        """The lowest address that the file has lost and somebody looked at, or NOT_LOST."""
        return int(_maps[self._row, 2])

    def touch(self, begin: int, end: int) -> None:
        """Bring bytes into memory; `begin` and `end` are addresses."""
        _code()[1](begin, end, PAGE)
        _code()[1](end - 1, end, PAGE)

    def __del__(self) -> None:
        if self.__dict__.get("_row", -1) < 0:
            return
        with _lock:
            _maps[self._row, 1] = 0
            _libc().munmap(self.address, self.nbytes)
            _free.append(self._row)


def copy_parts(rows: Array) -> None:
    """Copy memory; each row has the address to copy from, that to copy to, and the size."""
    rows = np.ascontiguousarray(rows, c_int64)
    _code()[2](rows.ctypes.data, len(rows), 0)
