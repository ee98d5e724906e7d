"""`readers.NemoAsr` against the oracle, on manifests that are made here; errors and policies."""

from __future__ import annotations

import io
import json
import sys

import numpy as np
import nvidia.dali.experimental.dynamic as dali
import pytest
import soundfile

import ndd
from tests.helpers import arrays

_rng = np.random.default_rng(8)
RATES = {
    "mono.wav": 16000,
    "stereo.flac": 24000,
    "three.wav": 16000,
    "one.wav": 8000,
    "no.wav": 8000,
}
SHAPES = {"mono.wav": (1600, 1), "stereo.flac": (2400, 2), "three.wav": (500, 3), "one.wav": (1, 1),
          "no.wav": (0, 1)}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("speech")
    for name, shape in SHAPES.items():
        sound = _rng.integers(-32768, 32767, shape).astype(np.int16)
        soundfile.write(made / name, sound, RATES[name], subtype="PCM_16")
    return made


@pytest.fixture
def write(folder, tmp_path):
    """Write a manifest of entries, or of lines; files are those of the folder."""

    def written(*entries, name="all.json"):
        lines = []
        for entry in entries:
            if isinstance(entry, dict) and entry.get("audio_filepath") in SHAPES:
                entry = {**entry, "audio_filepath": str(folder / entry["audio_filepath"])}
            lines.append(entry if isinstance(entry, str) else json.dumps(entry))
        path = tmp_path / name
        path.write_text("\n".join(lines))
        return str(path)

    return written


def samples(library, batch_size=2, **options):
    """All samples of an epoch: one array per output. None if the library found nothing."""
    for key in ("dtype",):
        if key in options:
            options[key] = getattr(library, options[key])
    found = []
    for item in library.readers.NemoAsr(pad_last_batch=True, **options).next_epoch(batch_size):
        outputs = [[np.array(t) for t in output.tensors] for output in item]
        found += zip(*outputs, strict=True)
    return found


def check(manifests, off=0, **options):
    """Lengths, rates, texts and numbers are equal; sounds are within 1e-5 of the largest value."""
    ours = samples(ndd, manifest_filepaths=manifests, **options)
    theirs = samples(dali, manifest_filepaths=manifests, **options)
    assert len(ours) == len(theirs) > 0
    for a, b in zip(ours, theirs, strict=True):
        assert [x.dtype for x in a] == [x.dtype for x in b]
        assert [x.shape for x in a] == [x.shape for x in b]
        for x, y in zip(a[1:], b[1:], strict=True):
            np.testing.assert_array_equal(x, y)
        far = np.abs(a[0].astype(np.float64) - b[0]).max(initial=0)
        assert far <= max(1e-5 * np.abs(b[0].astype(np.float64)).max(initial=0), off)
    return ours


ALL = [
    dict(audio_filepath="mono.wav", duration=0.1, text="hello"),
    dict(audio_filepath="stereo.flac", text='Größe "x" 😀 \n\t\\ '),
    dict(audio_filepath="three.wav", duration=0.03125, offset=0.0),
    dict(audio_filepath="one.wav", text=""),
    dict(audio_filepath="no.wav", text="silence", speaker={"name": ["x"]}),
]


@pytest.mark.parametrize(
    ("options", "off"),
    [
        (dict(), 0),
        (dict(downmix=False, read_idxs=True), 0),
        (dict(read_text=False, read_sample_rate=False), 0),
        (dict(read_text=False, read_idxs=True, dtype="int16", downmix=False), 0),
        (dict(dtype="int16"), 1),
        (dict(dtype="int32", downmix=False), 0),
        (dict(dtype="int32"), 256),  # the mean of three channels is a float32
        (dict(sample_rate=16000.0), 0),
        (dict(sample_rate=11025.0, downmix=False, quality=80.0), 0),
        (dict(sample_rate=44100.0, dtype="int16", quality=0.0, read_idxs=True), 1),
        (dict(sample_rate=0.0), 0),
    ],
    ids=str,
)
def test_outputs_equal_the_oracles(write, options, off) -> None:
    check(write(*ALL), off, **options)


def test_parts_of_files(write) -> None:
    """Offsets and durations are rounded down to samples, in float64."""
    parts = [(0.05, 0.02), (0.01003, 0.00503), (0.01, 5.0), (-0.05, 0.01), (0.05, None), (0.05, 0),
             (None, 1e-9), (0.05, -1), (0.0999687, None), (0.1, None), (7e-5, 7e-5),
             *((k / 16000, (k + 1) / 16000) for k in range(40)),
             *_rng.uniform(0, 0.1, (60, 2)).tolist()]  # fmt: skip
    entries = []
    for offset, duration in parts:
        entry = dict(audio_filepath="mono.wav", offset=offset, duration=duration)
        entries.append({k: v for k, v in entry.items() if v is not None})
    found = check(write(*entries), batch_size=16, dtype="int16", downmix=False)
    assert len({len(sample[0]) for sample in found}) > 50
    check(write(*entries[:12]), sample_rate=12000.0)


def test_only_the_part_is_decoded(write, monkeypatch) -> None:
    from ndd.codecs import sound_files

    seen = []

    class Spied(sound_files.FlacSamples):
        def __init__(self, data, flac, frames, channels, first) -> None:
            super().__init__(data, flac, frames, channels, first)
            seen.append(first)

        def read(self, out) -> int:
            seen.append(len(out))
            return super().read(out)

    monkeypatch.setattr(sound_files, "FlacSamples", Spied)
    path = write(dict(audio_filepath="stereo.flac", offset=0.05, duration=0.01))
    assert samples(ndd, 1, manifest_filepaths=path)[0][0].shape == (240,)
    assert seen == [1, 1200, 240]  # the first sample of the frame is read to see that it is one


def test_limits_of_durations(write) -> None:
    path = write(*(dict(audio_filepath="mono.wav", duration=d, text=str(d))
                   for d in (0.02, 0.1, 0.5, 1.0, 2.0, -1)), dict(audio_filepath="one.wav"))  # fmt: skip
    for options in (dict(min_duration=0.5), dict(max_duration=0.5), dict(min_duration=0.1),
                    dict(max_duration=0.1), dict(min_duration=0.05, max_duration=1.0),
                    dict(min_duration=-1.0, max_duration=-2.0)):  # fmt: skip
        check(path, read_idxs=True, **options)


def test_several_manifests_are_counted_apart(write) -> None:
    first, second = write(*ALL[:3], name="a.json"), write(*ALL[1:4], name="b.json")
    found = check([first, second, first], read_idxs=True)
    assert [s[-1].tolist() for s in found[:6]] == [[0], [1], [2], [0], [1], [2]]
    ours = ndd.readers.NemoAsr(manifest_filepaths=[first, second])
    theirs = dali.readers.NemoAsr(manifest_filepaths=[first, second])
    assert ours.get_metadata() == dict(theirs.get_metadata())


def test_lines_that_cannot_be_used_are_left_out_with_a_warning(write) -> None:
    good = ALL[0]
    path = write("", good, "hello", '["x"]', dict(text="x"), "  ", good, dict(audio_filepath=""),
                 "\r")  # fmt: skip
    with pytest.warns(
        UserWarning, match=r"4 line\(s\) of .*line 3: not a JSON object .*and 1 more"
    ):
        ours = samples(ndd, manifest_filepaths=path, read_idxs=True)
    theirs = samples(dali, manifest_filepaths=path, read_idxs=True)
    assert [int(s[-1][0]) for s in ours] == [int(s[-1][0]) for s in theirs] == [0, 1]


BAD_LINES = {
    '{"audio_filepath": "x", "text": 3}': "`text` must be a string, got 3",
    '{"audio_filepath": 3}': "`audio_filepath` must be a path, got 3",
    '{"audio_filepath": "x", "duration": "1"}': "`duration` must be a number of seconds, got '1'",
    '{"audio_filepath": "x", "offset": true}': "`offset` must be a number of seconds, got True",
    '{"audio_filepath": "x", "offset": Infinity}': "`offset` must be a number of seconds, got inf",
    '{"audio_filepath": "x", "offset": 1%s}' % ("0" * 400): "`offset` must be a number of seconds",
    '{"audio_filepath": "\\ud800"}': "line 1: ",
    '{"audio_filepath": "x"': "not a JSON object",
    "[" * 100000: "not a JSON object",
}  # fmt: skip


@pytest.mark.parametrize("line", BAD_LINES, ids=lambda line: line[:60])
def test_warnings_say_why(write, line) -> None:
    with pytest.warns(UserWarning) as found:
        reader = ndd.readers.NemoAsr(manifest_filepaths=write(line, ALL[0]))
    assert BAD_LINES[line] in str(found[0].message) and len(str(found[0].message)) < 500
    assert reader.get_metadata()["epoch_size"] == 1


@pytest.mark.parametrize(
    ("kind", "text", "options"),
    [
        (TypeError, "`manifest_filepaths` is needed", dict()),
        (ValueError, "`manifest_filepaths` is empty", dict(manifest_filepaths=[])),
        (TypeError, "`manifest_filepaths` must be a path or a list of paths, got 3", dict(manifest_filepaths=3)),
        (FileNotFoundError, "cannot read '/nowhere.json': No such file", dict(manifest_filepaths="/nowhere.json")),
        (TypeError, "`dtype` must be one of i16, i32, f32, got u8", dict(dtype=ndd.uint8)),
        (ValueError, "`quality` must be from 0 to 100, got 101.0", dict(quality=101)),
        (TypeError, "`sample_rate` must be a number, got list", dict(sample_rate=[1])),
        (ValueError, "`max_duration` must be finite, got nan", dict(max_duration=float("nan"))),
        (ValueError, "no utterances found in ", dict(min_duration=100.0)),
        (TypeError, "did you mean `read_text`?", dict(read_txt=True)),
        (ValueError, "readers work on the CPU, got device='gpu'", dict(device="gpu")),
    ],
)  # fmt: skip
def test_errors_of_arguments(write, kind, text, options) -> None:
    if "is needed" not in text:
        options = {"manifest_filepaths": write(*ALL), **options}
    with pytest.raises(kind) as found:
        ndd.readers.NemoAsr(**options)
    assert str(found.value).startswith("readers.NemoAsr") and text in str(found.value)


@pytest.fixture
def broken(write, folder, tmp_path):
    """A manifest with one good file and four that cannot be read."""
    file = io.BytesIO()
    soundfile.write(file, _rng.uniform(-0.5, 0.5, 20000), 16000, format="FLAC")
    (tmp_path / "cut.flac").write_bytes(file.getvalue()[:9000])
    (tmp_path / "text.wav").write_text("no sound")
    slow = bytearray((folder / "mono.wav").read_bytes())
    slow[24:28] = (1).to_bytes(4, "little")
    (tmp_path / "slow.wav").write_bytes(slow)
    bad = [dict(audio_filepath=str(tmp_path / n)) for n in ("cut.flac", "text.wav", "gone.wav")]
    return write(ALL[0], *bad, dict(audio_filepath="mono.wav", offset=3.0),
                 dict(audio_filepath=str(tmp_path / "slow.wav")), ALL[1])  # fmt: skip


REASONS = ["cannot be decoded|ends after", "8 bytes are not a sound file", "No such file",
           r"`offset` is 3.0 s in the manifest, but the sound has only 0.1 s \(1600 samples",
           "its sampling rate is 1 Hz"]  # fmt: skip


def test_errors_name_the_file(broken) -> None:
    reader = ndd.readers.NemoAsr(manifest_filepaths=broken, sample_rate=8000.0)
    epoch = reader.next_epoch()
    assert next(epoch)[0].shape == (800,)
    for k, reason in enumerate(REASONS, 1):
        with pytest.raises((ValueError, OSError), match=rf"\(sample {k}\): .*({reason})"):
            next(epoch)
    assert next(epoch)[0].shape == (800,)


def test_policies_of_errors(broken) -> None:
    options = dict(manifest_filepaths=broken, sample_rate=8000.0, read_idxs=True)
    filling = ndd.readers.NemoAsr(on_error="fill", **options)
    sounds, rates, texts, numbers = next(filling.next_epoch(7))
    assert [len(a) for a in arrays(sounds)] == [800, 0, 0, 0, 0, 0, 800]
    assert [int(r) for r in arrays(rates)] == [16000, 0, 0, 0, 0, 0, 24000]
    assert bytes(arrays(texts)[0]) == b"hello" and [int(n[0]) for n in arrays(numbers)] == [
        *range(7)
    ]
    assert sorted(e.index for e in filling.errors) == [1, 2, 3, 4, 5]
    skipping = ndd.readers.NemoAsr(on_error="skip", **options)
    assert {int(n[0]) for n in arrays(next(skipping.next_epoch(7))[3])} == {0, 6}
    own = ndd.readers.NemoAsr(on_error=lambda error: np.ones(5, np.float32), **options)
    assert [len(a) for a in arrays(next(own.next_epoch(7))[0])] == [800, 5, 5, 5, 5, 5, 800]


def test_a_state_belongs_to_a_manifest(write) -> None:
    one, other = write(*ALL), write(*ALL[:4], {**ALL[4], "offset": 0.1}, name="other.json")
    state = ndd.readers.NemoAsr(manifest_filepaths=one).get_state()
    ndd.readers.NemoAsr(manifest_filepaths=one).set_state(state)
    with pytest.warns(UserWarning, match=r"readers\.NemoAsr: the samples have other names"):
        ndd.readers.NemoAsr(manifest_filepaths=other).set_state(state)


def test_the_missing_extra(write, monkeypatch) -> None:
    path = write(*ALL)
    monkeypatch.setitem(sys.modules, "soundfile", None)
    wanted = r'^readers\.NemoAsr: soundfile is not installed: pip install "ndd-fusion\[audio\]"$'
    with pytest.raises(ImportError, match=wanted):
        ndd.readers.NemoAsr(manifest_filepaths=path)


def test_manifest_and_sounds_by_url(write, folder) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for name in ("mono.wav", "stereo.flac"):
        memory.pipe(f"/speech/{name}", (folder / name).read_bytes())
    lines = [
        json.dumps(dict(audio_filepath=f"memory://speech/{n}")) for n in ("mono.wav", "stereo.flac")
    ]
    memory.pipe("/speech/all.json", "\n".join(lines).encode())
    got = samples(ndd, manifest_filepaths="memory://speech/all.json")
    want = samples(
        ndd,
        manifest_filepaths=write(
            dict(audio_filepath="mono.wav"), dict(audio_filepath="stereo.flac")
        ),
    )
    assert len(got) == 2
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a[0], b[0])
