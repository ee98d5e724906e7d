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
import os
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
# Maps of more bytes than this do not stay resident: taking away 1 GB takes 10 ms.
RESIDENT_BYTES = 1 << 30
_looked_at: Array = np.zeros(1, np.int64)  # bytes since pages were taken away
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
  %was_ignored = icmp eq i64 %handler, 1
  %may_go_on = select i1 %is_from_system, i1 false, i1 %was_ignored
  br i1 %may_go_on, label %passed, label %end_process
end_process:
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

define i32 @ndd_ask_for_parts(ptr %a, ptr %b, i64 %rows, i64 %count, i64 %descriptor) {{
start:
  %fadvise = inttoptr i64 {fadvise} to ptr
  %file = trunc i64 %descriptor to i32
  br label %next
next:
  %k = phi i64 [0, %start], [%after, %ask]
  %is_left = icmp ult i64 %k, %count
  br i1 %is_left, label %ask, label %done
ask:
  %after = add i64 %k, 1
  %offset = mul i64 %k, 16
  %row = add i64 %rows, %offset
  %begin_at = inttoptr i64 %row to ptr
  %begin = load i64, ptr %begin_at
  %end_at = getelementptr i64, ptr %begin_at, i64 1
  %end = load i64, ptr %end_at
  %size = sub i64 %end, %begin
  %ignored = call i32 %fadvise(i32 %file, i64 %begin, i64 %size, i32 {will_need})
  br label %next
done:
  ret i32 0
}}

define i32 @ndd_touch_parts(ptr %a, ptr %b, i64 %rows, i64 %count, i64 %unused) {{
start:
  br label %next
next:
  %k = phi i64 [0, %start], [%k_after, %last]
  %is_left = icmp ult i64 %k, %count
  br i1 %is_left, label %row, label %done
row:
  %k_after = add i64 %k, 1
  %offset = mul i64 %k, 16
  %begin_place = add i64 %rows, %offset
  %begin_at = inttoptr i64 %begin_place to ptr
  %begin = load i64, ptr %begin_at
  %end_at = getelementptr i64, ptr %begin_at, i64 1
  %end = load i64, ptr %end_at
  br label %page
page:
  %at = phi i64 [%begin, %row], [%after, %touch]
  %is_inside = icmp ult i64 %at, %end
  br i1 %is_inside, label %touch, label %last
touch:
  %place = inttoptr i64 %at to ptr
  %byte = load volatile i8, ptr %place
  %after = add i64 %at, {page}
  br label %page
last:
  %last_at = sub i64 %end, 1
  %last_place = inttoptr i64 %last_at to ptr
  %last_byte = load volatile i8, ptr %last_place
  br label %next
done:
  ret i32 0
}}

define i32 @ndd_unmap_pages(ptr %a, ptr %b, i64 %rows, i64 %count, i64 %unused) {{
start:
  %madvise = inttoptr i64 {madvise} to ptr
  br label %next
next:
  %k = phi i64 [0, %start], [%after, %row], [%after, %unmap]
  %is_left = icmp ult i64 %k, %count
  br i1 %is_left, label %row, label %done
row:
  %after = add i64 %k, 1
  %offset = mul i64 %k, 24
  %place = add i64 %rows, %offset
  %begin_at = inttoptr i64 %place to ptr
  %begin = load i64, ptr %begin_at
  %end_at = getelementptr i64, ptr %begin_at, i64 1
  %end = load i64, ptr %end_at
  %is_used = icmp ugt i64 %end, %begin
  br i1 %is_used, label %unmap, label %next
unmap:
  %size = sub i64 %end, %begin
  %ignored = call i32 %madvise(i64 %begin, i64 %size, i32 {dont_need})
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
def _code() -> tuple[int, dict[str, Callable[[int, int, int], int]]]:
    """The address of the handler, and the other functions by their names."""
    libc = _libc()

    def address(function: Any) -> int:
        return ctypes.cast(function, c_void_p).value or 0

    source = _SOURCE.format(
        maps=MAPS, table=_maps.ctypes.data, page=PAGE, chain=_chain.ctypes.data,
        default=ctypes.addressof(_default), siginfo=_SA_SIGINFO,
        access=mmap.PROT_READ | mmap.PROT_WRITE,
        anonymous=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED,
        madvise=address(libc.madvise), dont_need=mmap.MADV_DONTNEED,
        fadvise=address(libc.posix_fadvise64), will_need=os.POSIX_FADV_WILLNEED,
        mmap=address(libc.mmap), sigaction=address(libc.sigaction), raise_=address(libc["raise"]),
    )  # fmt: skip
    with compiling:
        import llvmlite.binding as llvm

        target = new_target()
        code = target.emit_object(llvm.parse_assembly(source))
        engine, handler = link("ndd_on_bus_error", code)
        names = ("ask_for_parts", "touch_parts", "unmap_pages", "copy_parts")
        addresses = {name: engine.get_function_address(f"ndd_{name}") for name in names}
    return handler, {name: native(engine, at) for name, at in addresses.items()}


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
            self.address, self.nbytes, self._descriptor = made, nbytes, descriptor
            self._row = _free.pop()
            # The end comes last: until then the handler does not look at the row.
            row = _maps[self._row]
            row[0], row[2] = made, NOT_LOST
            row[1] = made + nbytes

    def lost_from(self) -> int:
        """The lowest address that the file has lost and somebody looked at, or NOT_LOST."""
        return int(_maps[self._row, 2])

    def touch(self, parts: Array) -> None:
        """Bring bytes into memory; each row has a begin and an end, which are offsets."""
        call = _code()[1]
        parts = np.ascontiguousarray(parts, np.int64)
        # Scattered parts come from the disk all at once: 1700 MB/s, one by one 850. The system
        # reads on by itself behind neighbours: 2900 MB/s, with advice 1100.
        if len(parts) > 1:
            call["ask_for_parts"](parts.ctypes.data, len(parts), self._descriptor)
        places = parts + self.address
        call["touch_parts"](places.ctypes.data, len(places), 0)
        _unmap_pages(int((parts[:, 1] - parts[:, 0]).sum()))

    def __del__(self) -> None:
        if self.__dict__.get("_row", -1) < 0:
            return
        with _lock:
            _maps[self._row, 1] = 0
            _libc().munmap(self.address, self.nbytes)
            _free.append(self._row)


def _unmap_pages(nbytes: int) -> None:
    """Count bytes that were looked at; after many, take the pages of all maps from this process.

    They stay in the cache of the system, which has them back at the next look. Without this, the
    resident memory of a process that reads 1 TB would grow until the system takes pages away.
    """
    _looked_at[0] += nbytes
    if _looked_at[0] <= RESIDENT_BYTES:
        return
    with _lock:
        _looked_at[0] = 0
        if np.maximum(_maps[:, 1] - _maps[:, 0], 0).sum() > RESIDENT_BYTES:
            # In native code, because a map that Python's garbage collector closes meanwhile would
            # leave its addresses to others.
            _code()[1]["unmap_pages"](_maps.ctypes.data, MAPS, 0)


def copy_parts(rows: Array) -> None:
    """Copy memory; each row has the address to copy from, that to copy to, and the size."""
    rows = np.ascontiguousarray(rows, c_int64)
    _code()[1]["copy_parts"](rows.ctypes.data, len(rows), 0)
