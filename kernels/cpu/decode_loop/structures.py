"""Numbers from Python → fields in memory, which the generated code reads by the same names.

NumPy takes the dtype of a row from these classes, and code.py the offset and size of each field. A
structure keeps the targets of its POINTER fields alive, because Python assigns objects to them. A
c_void_p is a bare address, and somebody else owns its target.
"""

from __future__ import annotations

from ctypes import POINTER, Structure, c_bool, c_int, c_int64, c_size_t, c_uint32, c_void_p

import numpy as np

from .nvimgcodec_c import DecodeParams, ImageInfo, View

HELD = -1  # the length of a picture whose pixels are at `data`, because somebody has decoded it


class EncodedPicture(Structure):
    """An encoded picture, where to decode it to, and whether that is done."""

    _fields_ = (
        ("data", c_void_p),
        ("length", c_int64),  # 0: the loop skips it, and Python decodes it; or HELD
        ("target", c_void_p),  # address of the decoded pixels
        ("height", c_int64), ("width", c_int64), ("channels", c_int64),  # of the decoded pixels
        # The region to decode; the whole picture if `bottom` is 0.
        ("top", c_int64), ("left", c_int64), ("bottom", c_int64), ("right", c_int64),
        ("done", c_bool),  # whether it is decoded and all kernels have run
    )  # fmt: skip


PICTURE = np.dtype(EncodedPicture)


class Kernel(Structure):
    """A kernel that runs on every decoded sample."""

    _fields_ = (
        ("entry", c_void_p),
        ("table", POINTER(c_int64)),
        ("width", c_int64),  # columns of the table
        ("scratch", c_int64),  # column for the address of its scratch memory; -1: none
        ("moved", POINTER(c_int64)),  # columns relative to the thread's scratch memory
        ("moved_count", c_int64),
        (
            "pixels",
            POINTER(c_int64),
        ),  # columns of the decoded picture, if in scratch memory
        ("pixels_count", c_int64),
    )


class Job(Structure):
    """The state that all threads share while they process a batch."""

    _fields_ = (
        ("next", c_int64),  # the next sample to claim
        ("count", c_int64),
        ("pictures", POINTER(EncodedPicture)),
        ("in_scratch", c_bool),  # whether targets are relative to the thread's scratch memory
        ("spec", c_int), ("format", c_int),  # values of nvimgcodec_c.FORMATS
        ("between", c_int64),  # offset of the kernels' own scratch memory in the thread's
        ("kernels", POINTER(Kernel)),
        ("kernel_count", c_int64),
        ("yields", c_bool),  # whether a thread lets others run after each picture
    )  # fmt: skip


class Decoder(Structure):
    """The decoder of one thread; its structures describe the current picture."""

    _fields_ = (
        ("instance", c_void_p), ("decoder", c_void_p),
        ("params", DecodeParams), ("info", ImageInfo), ("view", View),
        # Objects of nvimgcodec; stream, part and image are reused for the next picture.
        ("stream", c_void_p), ("part", c_void_p), ("image", c_void_p),
        ("future", c_void_p), ("result", c_uint32), ("result_count", c_size_t),
    )  # fmt: skip


# The functions that free reusable objects. A part must be freed before its stream.
FREED_BY = {"part": "CodeStreamDestroy", "stream": "CodeStreamDestroy", "image": "ImageDestroy"}
