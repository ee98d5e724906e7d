"""Hostile picture files: what a decoder must never see is refused first, by our own checks."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

import numpy as np
import pytest

import ndd
from tests.decoders.fixtures import _chunk, as_bytes, encoded, files, photo
from tests.faults import pictures
from tests.faults.corpus import corpus, tiff
from tests.helpers import run_python


def codestream(tile: tuple[int, int] = (8, 8), components: int = 3) -> bytes:
    """The main header of a JPEG 2000 codestream without boxes, up to SIZ: 51 bytes."""
    body = struct.pack(">H8IH", 0, 8, 8, 0, 0, *tile, 0, 0, components)
    body += b"\x07\x01\x01" * components
    return b"\xff\x4f\xff\x51" + struct.pack(">H", len(body) + 2) + body


def problem(content: bytes) -> str:
    """The error that a file causes, which is the same for its shape and its pixels."""
    data = ndd.tensor(as_bytes(content))
    with pytest.raises(ValueError) as caught:
        ndd.peek_image_shape(data)
    told = str(caught.value)
    with pytest.raises(ValueError):
        ndd.decoders.image(data).evaluate()
    return told.partition("sample 0: ")[2].rpartition(" (called")[0]


# -- checks of headers ---------------------------------------------------------------------------


@pytest.mark.parametrize("broken", [{"tile": (0, 8)}, {"tile": (8, 0)}, {"components": 0}])
def test_a_codestream_cannot_kill_the_process(broken: dict[str, object]) -> None:
    content = codestream(**broken)  # type: ignore[arg-type]
    told = run_python(
        f"""
        import ndd, numpy as np
        data = ndd.batch([np.frombuffer({content!r}, np.uint8)])
        for call in (ndd.peek_image_shape, ndd.decoders.image):
            try:
                call(data).evaluate()
            except ValueError as error:
                print("refused:", error)
        print(ndd.decoders.image(data, on_error="fill").evaluate().shape)
        """
    )
    assert told.count("refused: ") == 2 and "JPEG 2000 header is damaged" in told
    assert told.endswith("[(1, 1, 3)]")


def changed(name: str, at: int, form: str, value: int) -> bytes:
    data = bytearray(corpus()[name])
    struct.pack_into(form, data, at, value)
    return bytes(data)


def tag_at(name: str, tag: int) -> int:
    """Where the value of a TIFF tag is."""
    data = corpus()[name]
    (at,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, at)
    places = {
        struct.unpack_from("<H", data, p)[0]: p + 8 for p in range(at + 2, at + 2 + 12 * count, 12)
    }
    return places[tag]


def idat() -> int:
    return corpus()["png"].index(b"IDAT") - 4


REFUSED = {
    "a chunk of 2147483647 bytes": lambda: changed("png", idat(), ">I", 2**31 - 1),
    "colour type 5 with 8 bits": lambda: changed("png", 25, ">B", 5),
    "there is no IDAT chunk": lambda: corpus()["png"][: idat()] + _chunk(b"IEND", b""),
    "there is no palette": lambda: corpus()["png_palette"].replace(b"PLTE", b"pLTE"),
    "a header of 41 bytes": lambda: changed("bmp", 14, "<I", 41),
    "bytes of pixels": lambda: corpus()["bmp"][:-1],
    "17 bits, kind 0": lambda: changed("bmp", 28, "<H", 17),
    "a palette of 257 colours": lambda: changed("bmp_grey", 46, "<I", 257),
    "it needs 6 strips or tiles": lambda: changed("tiff_16", tag_at("tiff_16", 284), "<H", 2),
    "a strip or tile reaches beyond": lambda: changed("tiff_plain", tag_at("tiff_plain", 279), "<I", 2**31),
    "a strip or tile is too short": lambda: changed("tiff_plain", tag_at("tiff_plain", 256), "<H", 54),
    "33 channels": lambda: tiff(np.zeros((2, 2, 33), np.uint8), []),
    "compression 6 is not supported": lambda: tiff(photo(16, 16), [(259, 6)]),
    "tiles of 15x16": lambda: tiff(photo(16, 16), [(322, 16), (323, 15)]),
    "JPEG of 37x53 in a strip": lambda: changed("tiff_jpeg", tag_at("tiff_jpeg", 256), "<H", 66),
    "no key frame": lambda: changed("webp", 20, "<B", corpus()["webp"][20] | 1),
    "the picture does not fill its canvas": lambda: changed("webp_extended", 24, "<B", 60),
    "SIZ: 65 components": lambda: codestream(components=65),
    "the highest value is [0]": lambda: b"P5 2 2 0\n1234",
    "3 of 4 bytes of pixels": lambda: b"P5 2 2 255\n123",
    "a sampling factor": lambda: corpus()["jpeg_cmyk"].replace(b"\x01\x11\x00", b"\x01\x51\x00"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_unsound_headers_are_refused(what: str) -> None:
    assert what in problem(REFUSED[what]())


def test_sound_files_pass() -> None:
    """Files of all kinds, from several encoders."""
    for name, content in corpus().items():
        if name == "bmp_16bit":  # not known to nvimgcodec
            continue
        x = ndd.decoders.image(ndd.tensor(as_bytes(content)))
        assert np.asarray(x).std() > 5, name


def test_many_scans_are_refused() -> None:
    """A decoder goes through the whole picture for each of them."""
    data = encoded(".jpg", photo(8, 8), 2, 1)  # progressive
    at = data.index(b"\xff\xc0" if b"\xff\xc0" in data else b"\xff\xc2")
    large = bytearray(data)
    struct.pack_into(">HH", large, at + 5, 16000, 16000)
    scan = b"\xff\xda\x00\x08\x01\x01\x00\x01\x3f\x00" + b"\x00"
    assert "scans" in problem(bytes(large[:-2]) + scan * 5000 + b"\xff\xd9")


# -- memory that no decoder has written ----------------------------------------------------------


def test_no_pixels_of_other_pictures() -> None:
    """The picture in the TIFF file says that it is larger than the JPEG inside of it."""
    secret = as_bytes(encoded(".png", np.full((64, 66, 3), 77, np.uint8)))
    for k in range(20):
        ndd.decoders.image(ndd.batch([secret])).evaluate()
        bad = changed("tiff_jpeg", tag_at("tiff_jpeg", 256), "<H", 54 + k)
        assert "JPEG of 37x53" in problem(bad)


def test_grey_and_alpha_in_tiff() -> None:
    """For RGB, nvimgcodec reads beyond the rows of such a file."""
    pixels = photo(32, 48)
    file = ndd.tensor(as_bytes(tiff(pixels[..., :2], [(262, 1), (338, 2)])))
    grey = np.repeat(pixels[..., :1], 3, axis=-1)
    np.testing.assert_array_equal(ndd.decoders.image(file), grey)
    part = ndd.decoders.image_crop(file, crop=[5, 6], crop_pos_x=0.0, crop_pos_y=0.0)
    np.testing.assert_array_equal(part, grey[:5, :6])


def test_animations_are_their_first_picture() -> None:
    """As upstream, also if the picture outside of the animation is another one."""
    still = np.asarray(ndd.decoders.image(ndd.tensor(as_bytes(corpus()["png_animated"]))))
    np.testing.assert_array_equal(still, photo(20, 24))
    hidden = corpus()["png_animated"]
    first = hidden.index(b"fcTL") - 4
    without = hidden[:first] + hidden[first + 38 :]  # IDAT is no longer a part of the animation
    np.testing.assert_array_equal(
        ndd.decoders.image(ndd.tensor(as_bytes(without))), photo(20, 24, 1)
    )


# -- mutations -----------------------------------------------------------------------------------


def past() -> list[Path]:
    return sorted(pictures.PAST.glob("*.bin"))


def test_past_troubles_stay_away() -> None:
    """Files that once crashed, hung, exploded or showed memory that nobody had written."""
    assert len(past()) >= 10
    found = pictures.run_files([path.read_bytes() for path in past()])
    assert not found.troubles, found.troubles
    assert found.tried == len(past()) and found.outcomes.total() == 2 * found.tried


def test_mutations() -> None:
    """Two thousand damaged files; more with NDD_STRESS=1."""
    count = 40_000 if os.environ.get("NDD_STRESS") == "1" else 2_000
    found = pictures.run(seed=0, count=count)
    assert not found.troubles, found.troubles
    assert found.outcomes["decoded"] > count / 4 and found.outcomes["refused"] > count / 4


def test_the_fuzzer_sees_what_it_looks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children that misbehave on purpose."""
    monkeypatch.setenv("NDD_FAULT", "3=crash,5=hang,7=memory,9=unwritten")
    monkeypatch.setattr(pictures, "HANG_SECONDS", 10.0)
    found = pictures.run_files([files()["png"]] * 12)
    kinds = {(t.number, t.kind) for t in found.troubles}
    assert kinds == {(3, "crash"), (5, "hang"), (7, "memory"), (9, "unwritten")}


@pytest.mark.parametrize("name", ["tiff_jpeg", "tiff_jpeg_strips", "tiff_ycbcr_jpeg"])
def test_no_pixels_of_pictures_decoded_before(name: str) -> None:
    """A TIFF file with a JPEG picture inside, one byte of it changed, gives what it gives, whatever
    the decoder had in its memory before."""
    good, rng = corpus()[name], np.random.default_rng(len(name))
    shape = tuple(np.asarray(ndd.peek_image_shape(ndd.tensor(as_bytes(good)))).tolist())
    before = [
        as_bytes(encoded(".png", np.full(shape, value, np.uint8))) for value in (0, 90, 255)
    ] + [as_bytes(good)]
    frames = [m.start() for m in re.finditer(b"\xff\xc0", good)]
    places = [at + k for at in frames[:2] for k in range(4, 12)]  # sizes and channels inside
    places += rng.integers(len(good), size=24).tolist()
    decoded = 0
    for k, place in enumerate(places * 2):
        content = bytearray(good)
        content[place] = int(rng.integers(256)) if k % 2 else max(0, content[place] - 1)
        seen = set()
        for other in before:
            ndd.decoders.image(ndd.tensor(other)).evaluate()
            try:
                seen.add(
                    np.array(ndd.decoders.image(ndd.tensor(as_bytes(bytes(content))))).tobytes()
                )
                decoded += 1
            except ValueError as error:
                seen.add(str(error).partition(" (called")[0].encode())
        assert len(seen) == 1, bytes(content)
    assert decoded > 40
