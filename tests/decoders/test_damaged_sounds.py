"""A few hundred damaged sound files: each gives samples or a ValueError, and takes little memory."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
import soundfile

import ndd
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
    at = data.index(b"OggS")
    spoilt = data[: at + 22] + b"abcd" + data[at + 26 :]
    assert with_checksums(spoilt) == data
    assert with_checksums(data[:30]) == data[:30]


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
