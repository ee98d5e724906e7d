"""Python fills these structures by field name, and the generated code reads the same fields.

NumPy takes the type of a row from these classes, and code.py the place and size of a field. What a
POINTER points to is kept alive by its structure, because Python sets it to an object; a c_void_p
is a mere address, of something that belongs to somebody else.
"""

from __future__ import annotations

from ctypes import POINTER, Structure, c_bool, c_int, c_int64, c_size_t, c_uint32, c_void_p

import numpy as np

from .nvimgcodec_c import DecodeParams, ImageInfo, View


class EncodedPicture(Structure):
    """An encoded picture, and what has become of it."""

    _fields_ = (
        ("data", c_void_p),
        ("length", c_int64),  # 0: it is not for this loop
        ("target", c_void_p),  # where its pixels go to
        ("height", c_int64), ("width", c_int64), ("channels", c_int64),  # of the result
        # the region that is decoded; all of it if `bottom` is 0
        ("top", c_int64), ("left", c_int64), ("bottom", c_int64), ("right", c_int64),
        ("done", c_bool),  # decoded, and all kernels have run
    )  # fmt: skip


PICTURE = np.dtype(EncodedPicture)


class Kernel(Structure):
    """A kernel that runs on every decoded sample."""

    _fields_ = (
        ("entry", c_void_p),
        ("table", POINTER(c_int64)),
        ("width", c_int64),  # numbers in a row of the table
        ("scratch", c_int64),  # column for the address of scratch memory; -1 if it needs none
        ("moved", POINTER(c_int64)),  # columns that count from the thread's scratch memory
        ("moved_count", c_int64),
    )


class Job(Structure):
    """What all threads share that work on a batch."""

    _fields_ = (
        ("next", c_int64),  # the sample that nobody has claimed yet
        ("count", c_int64),
        ("pictures", POINTER(EncodedPicture)),
        ("in_scratch", c_bool),  # whether targets count from the thread's scratch memory
        ("spec", c_int), ("format", c_int),  # values of nvimgcodec_c.FORMATS
        ("between", c_int64),  # bytes of scratch memory before what is a kernel's own
        ("kernels", POINTER(Kernel)),
        ("kernel_count", c_int64),
    )  # fmt: skip


class Decoder(Structure):
    """What one thread decodes with; the structures in it describe the picture at hand."""

    _fields_ = (
        ("instance", c_void_p), ("decoder", c_void_p),
        ("params", DecodeParams), ("info", ImageInfo), ("view", View),
        # objects of nvimgcodec that are used again and again
        ("stream", c_void_p), ("part", c_void_p), ("image", c_void_p),
        ("future", c_void_p), ("result", c_uint32), ("result_count", c_size_t),
    )  # fmt: skip


# What frees the objects that a decoder uses again; a part goes before the stream that it is of.
FREED_BY = {"part": "CodeStreamDestroy", "stream": "CodeStreamDestroy", "image": "ImageDestroy"}
