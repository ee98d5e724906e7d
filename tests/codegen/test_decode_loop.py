"""The structures that Python and the native decode loop share."""

from __future__ import annotations

import ctypes
import gc
import weakref
from ctypes import POINTER, Structure, addressof, c_bool, c_int, c_int64, c_uint32
from types import SimpleNamespace

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir

from ndd.codecs.image.nvimgcodec import nvimgcodec
from ndd.kernels.cpu.decode_loop import code, nvimgcodec_c
from ndd.kernels.cpu.decode_loop.job import DecodeJob, Pictures, sample_kernel
from ndd.kernels.cpu.decode_loop.structures import HELD, PICTURE
from ndd.kernels.cpu.runtime import link, new_target

I64 = ir.IntType(64)


class Inner(Structure):
    _fields_ = (("flag", c_bool), ("pair", c_int * 2))


class Outer(Structure):
    _fields_ = (
        ("small", c_uint32),
        ("inner", Inner),
        ("many", POINTER(Inner)),
        ("numbers", POINTER(c_int64)),
        ("large", c_int64),
    )


def test_generated_code_reads_and_writes_the_fields_that_python_fills() -> None:
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64, I64]), "fill")
    builder = ir.IRBuilder(function.append_basic_block())
    outer, index = code.NativeRecord(builder, Outer, function.args[0]), function.args[1]
    outer["numbers"][index] = outer["large"]
    outer["many"][index]["pair"][1] = outer["inner"]["pair"][0]
    outer["many"][index]["flag"] = I64(0x101)  # truncated: the byte after it must not be written
    outer["small"] = outer["large"]
    builder.ret_void()

    many, numbers = (Inner * 3)(), (c_int64 * 3)()
    made = Outer(small=1, inner=Inner(pair=(5, 6)), many=many, numbers=numbers, large=-(2**40) + 9)
    engine, address = link("fill", new_target().emit_object(llvm.parse_assembly(str(module))))
    ctypes.CFUNCTYPE(None, c_int64, c_int64)(address)(addressof(made), 2)
    del engine  # it owns the machine code, which must live until here
    assert list(numbers) == [0, 0, -(2**40) + 9]
    assert [(one.flag, list(one.pair)) for one in many] == [
        (False, [0, 0]), (False, [0, 0]), (True, [0, 5])
    ]  # fmt: skip
    assert bytes(many)[2 * ctypes.sizeof(Inner) + 1] == 0
    assert (made.small, made.inner.flag, list(made.inner.pair), made.large) == (
        9, False, [5, 6], -(2**40) + 9
    )  # fmt: skip


@pytest.mark.parametrize("name", ["Job", "Decoder"])
def test_the_code_follows_the_structures(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = code.source()
    fields = (("another", c_int64), *getattr(code, name)._fields_)
    monkeypatch.setattr(code, name, type(name, (Structure,), {"_fields_": fields}))
    assert code.source() != before


def test_a_job_keeps_what_it_points_to_and_nothing_longer() -> None:
    library = nvimgcodec_c.library(nvimgcodec)
    assert library is not None
    rows, table = np.zeros(3, PICTURE), np.zeros((3, 4), np.int64)  # length 0: none is decoded
    kernel = sample_kernel(SimpleNamespace(address=0), table, [1], [2], None)
    pictures = Pictures(rows, "RGB", False, library, DecodeJob)
    job = DecodeJob(pictures, np.arange(3), False, [kernel], 0)
    assert rows["target"].tolist() == [0, 1, 2]
    assert ctypes.cast(job._job.kernels[0].table, ctypes.c_void_p).value == table.ctypes.data
    assert (job._job.kernels[0].moved[:1], job._job.kernels[0].pixels[:1]) == ([1], [2])
    kept = [weakref.ref(rows), weakref.ref(table)]
    del rows, table, kernel, pictures
    gc.collect()
    assert all(array() is not None for array in kept)
    job.run(0)
    assert job.left() == [0, 1, 2]
    del job
    gc.collect()
    assert all(array() is None for array in kept)


@pytest.mark.parametrize("in_scratch", [False, True])
def test_pictures_that_others_have_decoded(in_scratch: bool) -> None:
    """They are copied to their targets, or kernels read them in place; others are left alone."""
    library = nvimgcodec_c.library(nvimgcodec)
    assert library is not None
    pixels, results = np.arange(48, dtype=np.uint8).reshape(4, 12), np.zeros((4, 12), np.uint8)
    seen: list[int] = []
    kind = ctypes.CFUNCTYPE(ctypes.c_int, *[c_int64] * 5)
    note = kind(lambda _a, _b, table, first, _end: seen.append(_cell(table, first)) or 0)
    rows, table = np.zeros(4, PICTURE), np.full((4, 1), 640)
    rows["height"], rows["width"], rows["channels"] = 2, 2, 3
    rows["data"], rows["length"] = pixels.ctypes.data + 12 * np.arange(4), [HELD, HELD, 0, HELD]
    columns = ([], [0]) if in_scratch else ([], [])
    entry = SimpleNamespace(address=ctypes.cast(note, ctypes.c_void_p).value)
    kernel = sample_kernel(entry, table, *columns, None)
    targets = np.full(4, 640) if in_scratch else results.ctypes.data + 12 * np.arange(4)
    pictures = Pictures(rows, "RGB", False, library, DecodeJob)
    job = DecodeJob(pictures, targets, in_scratch, [kernel], 0)
    job.run_held(1, 4, 10**6)
    assert job.left() == [0, 2]
    if in_scratch:
        assert seen == rows["data"][[1, 3]].tolist() and not results.any()
    else:
        assert seen == [640, 640] and results[[1, 3]].tolist() == pixels[[1, 3]].tolist()
        assert not results[[0, 2]].any()


def _cell(table: int, row: int) -> int:
    return c_int64.from_address(table + 8 * row).value
