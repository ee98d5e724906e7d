"""A few hundred damaged sound files: each gives samples or a ValueError, and takes little memory."""

from __future__ import annotations

import contextlib
import io
import itertools
from pathlib import Path

import numpy as np
import pytest
import soundfile

import ndd
from ndd.codecs.ogg_headers import check_vorbis_headers
from ndd.codecs.ogg_headers import checksum as our_checksum
from tests.faults.ogg_pages import checksum, with_checksums
from tests.faults.sounds import mutated, original

KINDS = ("wav", "flac", "vorbis", "opus", "mp3")
COUNT = 60


def mutant(kind: str, number: int) -> np.ndarray:
    """A damaged file; those of Ogg have right checksums."""
    rng = np.random.default_rng([4, number])
    data = bytes(mutated(original(kind, number % 10), rng))
    return np.frombuffer(with_checksums(data) if kind in ("vorbis", "opus") else data, np.uint8)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_decoded_or_refused(kind) -> None:
    counts = {"decoded": 0, "refused": 0}
    for number in range(COUNT):
        data = mutant(kind, number)
        try:
            samples, rate = ndd.decoders.audio(ndd.tensor(data), downmix=bool(number % 2))
            array = np.asarray(samples)
            assert array.ndim == 2 - number % 2 and rate.item() > 0
            assert array.size <= 64 * data.size  # what may be allocated for a header
            counts["decoded"] += 1
        except ValueError as error:
            assert "sample 0: " in str(error)
            counts["refused"] += 1
    assert min(counts.values()) > 0, counts


def test_damaged_files_are_filled() -> None:
    good = np.frombuffer(bytes(original("flac", 0)), np.uint8)
    want = np.asarray(ndd.decoders.audio(ndd.tensor(good))[0])
    for kind in KINDS:
        ndd.decoders.errors.clear()
        files = [good, *(mutant(kind, n) for n in range(12))]
        samples, rates = ndd.decoders.audio(ndd.batch(files), on_error="fill")
        found = [np.asarray(t) for t in samples.tensors]
        np.testing.assert_array_equal(found[0], want)
        bad = {entry.index for entry in ndd.decoders.errors}
        assert bad and all(not found[k].any() for k in bad)
        assert len(rates.tensors) == 13
    ndd.decoders.errors.clear()


def test_checksums_of_pages() -> None:
    data = bytes(original("vorbis", 0))
    assert checksum(b"") == 0 and with_checksums(data) == data
    assert all(our_checksum(data[:n]) == checksum(data[:n]) for n in range(0, len(data), 50))
    at = data.index(b"OggS")
    spoilt = data[: at + 22] + b"abcd" + data[at + 26 :]
    assert with_checksums(spoilt) == data
    assert with_checksums(data[:30]) == data[:30]


def whole(kind: str, number: int) -> bytes:
    return bytes(original(kind, number))


def test_vorbis_files_that_we_refuse_are_refused_by_libsndfile() -> None:
    """Those without a header, which would cost memory; checksums may be right or wrong, pages lost or twice."""
    counts = {"refused": 0, "left, refused": 0, "left": 0}
    for number in range(1500):
        rng = np.random.default_rng([6, number])
        data = whole("vorbis", number % 10)
        pages = [data[b:e] for b, e in itertools.pairwise(page_bounds(data))]
        if number % 3 == 0:  # pages are lost, or come twice, or in another order
            data = b"".join(pages[k] for k in rng.integers(0, len(pages), len(pages)))
        data = mutated(data, rng) if number % 3 or number % 2 else data
        array = np.frombuffer(with_checksums(data) if number % 4 == 0 else data, np.uint8)
        try:
            check_vorbis_headers(array)
            is_refused = False
        except ValueError:
            is_refused = True
        try:
            with soundfile.SoundFile(io.BytesIO(array.tobytes())):
                counts["left"] += 1
                assert not is_refused, number
        except soundfile.LibsndfileError:
            counts["refused" if is_refused else "left, refused"] += 1
    assert min(counts.values()) > 30, counts


def page_bounds(data: bytes) -> list[int]:
    found = [k for k in range(len(data)) if data[k : k + 4] == b"OggS"]
    return [*found, len(data)]


def test_headers_in_many_pages() -> None:
    """Comments may be long: pictures of records."""
    data = whole("vorbis", 3)
    first, second, third, *_ = page_bounds(data)
    table = data[second + 27 : second + 27 + data[second + 26]]
    body = data[second + 27 + len(table) : third]
    comments = body.index(b"\x05vorbis")
    setup = body[comments:]
    long = body[:7] + (0).to_bytes(4, "little") + (1).to_bytes(4, "little")
    text = b"A=" + bytes(200_000).replace(b"\0", b"x")
    long += len(text).to_bytes(4, "little") + text + b"\1"
    made = data[first:second]
    lacing = [
        *[255] * (len(long) // 255),
        len(long) % 255,
        *[255] * (len(setup) // 255),
        len(setup) % 255,
    ]
    packets, number = long + setup, 0
    while lacing:
        own, lacing = lacing[:255], lacing[255:]
        content, packets = packets[: sum(own)], packets[sum(own) :]
        number += 1
        made += (
            data[second : second + 18]
            + number.to_bytes(4, "little")
            + bytes(4)
            + bytes([len(own), *own])
            + content
        )
    sound = bytearray(data[third:])
    for at in page_bounds(bytes(sound))[:-1]:
        number += 1
        sound[at + 18 : at + 22] = number.to_bytes(4, "little")
    made = with_checksums(made + bytes(sound))
    got = np.asarray(ndd.decoders.audio(ndd.tensor(np.frombuffer(made, np.uint8)))[0])
    np.testing.assert_array_equal(
        got, soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)[0]
    )
    spoilt = bytearray(made)
    spoilt[150_000] ^= 1
    with pytest.raises(ValueError, match="page 3 is damaged, which has headers"):
        ndd.decoders.audio(ndd.tensor(np.frombuffer(spoilt, np.uint8)))


def test_damaged_vorbis_files_take_no_memory() -> None:
    """libsndfile loses 5 KB for each file whose second page is damaged."""
    data = bytearray(whole("vorbis", 1))
    data[page_bounds(bytes(data))[1] + 300] ^= 1
    bad = ndd.tensor(np.frombuffer(data, np.uint8))

    def refused(count: int) -> int:
        for _ in range(count):
            with contextlib.suppress(ValueError):
                ndd.decoders.audio(bad)
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4

    with pytest.raises(ValueError, match="not a sound file: page 1 is damaged, which has headers"):
        ndd.decoders.audio(bad)
    before = refused(300)
    assert refused(600) - before < 1500


def test_damaged_files_print_nothing(capfd) -> None:
    """libsndfile seeks to places before the beginning of damaged AIFF files."""
    file = io.BytesIO()
    soundfile.write(file, np.zeros(100), 16000, format="AIFF")
    good = np.frombuffer(file.getvalue(), np.uint8)
    for place in range(12, 54):
        data = good.copy()
        data[place] ^= 0xFF
        with contextlib.suppress(ValueError):
            np.asarray(ndd.decoders.audio(ndd.tensor(data))[0])
    assert "Exception" not in capfd.readouterr().err
