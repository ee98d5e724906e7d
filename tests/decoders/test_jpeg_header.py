"""Headers of JPEG files that we read ourselves: what nvimgcodec says of them, or nothing."""

from __future__ import annotations

import numpy as np
import pytest

from ndd import codec, jpeg
from tests.decoders.fixtures import as_bytes, files

PLAIN = ("jpeg", "jpeg_grey", "jpeg_progressive", "jpeg_422", "jpeg_exif1", "jpeg_exif6")


@pytest.mark.parametrize("adjust", [False, True])
def test_headers_are_those_of_the_library(adjust: bool) -> None:
    for name, content in files().items():
        data = as_bytes(content)
        try:
            wanted = codec._read_by_library(data, adjust)
        except ValueError as error:
            with pytest.raises(ValueError, match="") as caught:
                codec.read_header(data, adjust)
            assert str(caught.value) == str(error), name
            continue
        assert codec.read_header(data, adjust)[:-1] == wanted[:-1], name


def test_plain_files_need_no_library() -> None:
    for name in PLAIN:
        assert jpeg.frame_of(memoryview(files()[name])) is not None, name
    for name in ("jpeg_cmyk", "png", "bmp"):
        assert jpeg.frame_of(memoryview(files()[name])) is None, name


def test_damaged_headers_are_left_to_the_library() -> None:
    """Whatever is wrong: no exception, and no size that the library does not see, too."""
    content = files()["jpeg_exif6"]
    end = content.index(b"\xff\xda")  # the pixels begin
    rng = np.random.default_rng(0)
    for length in range(end + 2):
        assert jpeg.frame_of(memoryview(content[:length])) is None
    agreed = 0
    for at in range(end):
        changed = bytearray(content)
        changed[at] ^= int(rng.integers(1, 256))
        frame = jpeg.frame_of(memoryview(bytes(changed)))
        if frame is None:
            continue
        try:
            header = codec._read_by_library(as_bytes(bytes(changed)), True)
        except ValueError:
            continue  # found out when its pixels are decoded
        assert frame[:3] == (header.height, header.width, header.channels), at
        agreed += 1
    assert agreed > end // 2
