"""Our parser of JPEG headers gives the same as nvimgcodec, or declines the file."""

from __future__ import annotations

import numpy as np
import pytest

from ndd.codecs.image.formats import jpeg
from ndd.codecs.image.formats.jpeg import JpegFrame
from ndd.codecs.image.headers import Header, Headers, read_checked
from ndd.core.convert import wrap_arrays
from ndd.kernels.ir import dtypes as dt
from tests.decoders.fixtures import as_bytes, files

PLAIN = ("jpeg", "jpeg_grey", "jpeg_progressive", "jpeg_422", "jpeg_exif1", "jpeg_exif6")


def frame_of(content: bytes) -> list[int] | None:
    """Height, width and channels of a plain file; None for any other file."""
    data = as_bytes(content)
    address = data.__array_interface__["data"][0]
    (row,) = jpeg.frames(np.array([address]), np.array([len(content)])).tolist()
    if not row[JpegFrame.height]:
        assert not any(row)
        return None
    return row[: JpegFrame.exif_begin]


def headers_of(*contents: bytes, adjust: bool = True) -> Headers:
    arrays = [as_bytes(c) for c in contents]
    return Headers(wrap_arrays(arrays, dt.uint8, None, True, external=False), adjust)


def read_header(content: bytes, adjust: bool) -> Header | None:
    headers = headers_of(content, adjust=adjust)
    for sample in headers.unknown():
        headers.read(sample)
    return headers[0]


@pytest.mark.parametrize("adjust", [False, True])
def test_headers_are_those_of_the_library(adjust: bool) -> None:
    for name, content in files().items():
        data = as_bytes(content)
        try:
            wanted = read_checked(data, adjust)
        except ValueError as error:
            with pytest.raises(ValueError, match="") as caught:
                read_header(content, adjust)
            assert str(caught.value) == str(error), name
            continue
        found = read_header(content, adjust)
        assert found is not None and found[:-1] == wanted[:-1], name


def test_plain_files_need_no_library() -> None:
    for name in PLAIN:
        assert frame_of(files()[name]) is not None, name
    for name in ("jpeg_cmyk", "png", "bmp"):
        assert frame_of(files()[name]) is None, name


def test_damaged_headers_are_left_to_the_library() -> None:
    """Damaged headers raise no exception and give no size that nvimgcodec does not give."""
    content = files()["jpeg_exif6"]
    end = content.index(b"\xff\xda")  # here the pixels begin
    rng = np.random.default_rng(0)
    for length in range(end + 2):
        assert frame_of(content[:length]) is None
    agreed = 0
    for at in range(end):
        changed = bytearray(content)
        changed[at] ^= int(rng.integers(1, 256))
        frame = frame_of(bytes(changed))
        if frame is None:
            continue
        try:
            header = read_checked(as_bytes(bytes(changed)), True)
        except ValueError:
            continue  # detected when its pixels are decoded
        assert frame == [header.height, header.width, header.channels], at
        agreed += 1
    assert agreed > end // 2


def test_a_batch_of_all_kinds() -> None:
    """A batch of plain, rotated, other and invalid files gives the same as its files one by one."""
    names = ["jpeg", "png", "jpeg_exif6", "jpeg_grey", "bmp", "jpeg_cmyk"]
    contents = [files()[n] for n in names]
    headers = headers_of(*contents, b"no image")
    assert headers.unknown() == [1, 4, 5, 6]
    for sample in (1, 4, 5):
        headers.read(sample)
    with pytest.raises(ValueError, match="not an image"):
        headers.read(6)
    ones = [read_header(c, True) for c in contents]
    for found, one in zip(headers[:6], ones, strict=True):
        assert found is not None and one is not None and found[:-1] == one[:-1]
    assert headers[6] is None
    assert headers.dtypes() == {dt.uint8}
    for colour in ("RGB", "GRAY", "ANY_DATA"):
        wanted = [h.shape(colour) for h in ones if h is not None]
        assert headers.shapes(colour).tuples == [*wanted, wanted[0]]
    lengths = [len(c) if n in ("jpeg", "jpeg_grey") else 0 for n, c in zip(names, contents)]
    assert headers.native_lengths().tolist() == [*lengths, 0]


def test_too_large_headers_are_refused() -> None:
    import ndd

    headers, before = headers_of(files()["jpeg"]), ndd.decoders.get_max_pixels()
    ndd.decoders.set_max_pixels(10)
    try:
        assert headers.unknown() == [0]
        with pytest.raises(ValueError, match="more than the limit of 10"):
            headers.read(0)
    finally:
        ndd.decoders.set_max_pixels(before)
