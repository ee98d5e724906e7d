"""Videos against the oracle's CPU decoder, which knows VP8, VP9 and MJPEG: equal bits, frame by frame."""

from __future__ import annotations

import numpy as np
import pytest

import ndd
from tests.decoders.clips import FRAMES, encoded

from .oracle import upstream as dali

NAMES = ("vp8.webm", "vp9.webm", "vp9.mp4", "mjpeg.avi", "mjpeg.mp4")


def theirs(name: str, **options) -> np.ndarray:
    return np.asarray(dali.decoders.video(dali.as_tensor(encoded(name)), **options).cpu())


def ours(name: str, **options) -> np.ndarray:
    return np.asarray(ndd.decoders.video(ndd.tensor(encoded(name)), **options))


@pytest.mark.parametrize("name", NAMES)
def test_all_frames(name) -> None:
    np.testing.assert_array_equal(ours(name), theirs(name))


@pytest.mark.parametrize("name", NAMES)
def test_random_positions_and_strides(name) -> None:
    rng = np.random.default_rng(3)
    for _ in range(4):
        options = {"start_frame": int(rng.integers(0, FRAMES)), "stride": int(rng.integers(1, 6)),
                   "sequence_length": int(rng.integers(1, 9)), "fill_value": [9, 80, 200]}  # fmt: skip
        np.testing.assert_array_equal(ours(name, **options), theirs(name, **options))
    frames = rng.integers(0, FRAMES + 5, 6).tolist()
    np.testing.assert_array_equal(ours(name, frames=frames), theirs(name, frames=frames))


OPTIONS = [
    dict(start_frame=20, end_frame=40, stride=3, fill_value=[1, 2, 3]),
    dict(start_frame=5, stride=4), dict(end_frame=5), dict(start_frame=-3, sequence_length=5),
    dict(sequence_length=FRAMES + 3, fill_value=[7]), dict(frames=[-1, 2]),
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS)
def test_ranges(options) -> None:
    np.testing.assert_array_equal(ours("vp9.webm", **options), theirs("vp9.webm", **options))


# What the oracle's pipeline gives for these: its dynamic mode takes no other text than the default.
PADDED = [
    (dict(start_frame=25, sequence_length=10, pad_mode="none"), [25, 26, 27, 28, 29]),
    (dict(start_frame=25, sequence_length=7, pad_mode="edge"), [25, 26, 27, 28, 29, 29, 29]),
    (dict(start_frame=25, sequence_length=10, pad_mode="symmetric"), [25, 26, 27, 28, 29, 29, 28, 27, 26, 25]),
    (dict(start_frame=25, sequence_length=10, pad_mode="reflect"), [25, 26, 27, 28, 29, 28, 27, 26, 25, 24]),
    (dict(start_frame=25, sequence_length=8, stride=2, pad_mode="reflect_1001"), [25, 27, 29, 28, 26, 24, 22, 20]),
    (dict(start_frame=25, sequence_length=8, stride=2, pad_mode="reflect_101"), [25, 27, 29, 27, 25, 23, 21, 19]),
    (dict(frames=[3, 40, 31], pad_mode="edge"), [3, 29, 29]),
    (dict(frames=[28, 31, 33], pad_mode="reflect_101"), [28, 27, 25]),
    (dict(frames=[-1, -4], pad_mode="edge"), [0, 0]),
    (dict(start_frame=20, end_frame=40, stride=3, pad_mode="none"), [20, 23, 26, 29]),
    (dict(start_frame=20, end_frame=40, stride=3, pad_mode="repeat"), [20, 23, 26, 29, 29, 29, 29]),
]  # fmt: skip


@pytest.mark.parametrize(("options", "frames"), PADDED)
def test_padding(options, frames) -> None:
    np.testing.assert_array_equal(ours("mjpeg.avi", **options), ours("mjpeg.avi")[frames])


# -- the reader ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    root = tmp_path_factory.mktemp("videos")
    for label, names in (("a", ["vp9.webm"]), ("b", ["vp8.webm", "mjpeg.mp4"])):
        (root / label).mkdir()
        for name in names:
            (root / label / name).write_bytes(encoded(name).tobytes())
    return root


def outputs(library, **options):
    """All outputs of an epoch, sample by sample."""
    reader = library.experimental.readers.Video(**options)
    found = []
    for item in reader.next_epoch(batch_size=1):
        outs = item if isinstance(item, tuple) else (item,)
        found.append(
            [np.asarray(o.tensors[0].cpu() if library is dali else o.tensors[0]) for o in outs]
        )
    return found


READ = [
    dict(sequence_length=8), dict(sequence_length=8, step=5, stride=3, enable_frame_num="scalar"),
    dict(sequence_length=10, step=5), dict(sequence_length=10, stride=3, step=1),
    dict(sequence_length=4, uniform_sample=True, enable_frame_num="sequence", enable_timestamps=True),
]  # fmt: skip


@pytest.mark.parametrize("options", READ)
def test_reader(files, options) -> None:
    theirs, ours = (outputs(lib, file_root=str(files), **options) for lib in (dali, ndd))
    assert len(ours) == len(theirs) > 2
    for a, b in zip(ours, theirs, strict=True):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("more", [
    dict(sequence_length=8, stride=2), dict(sequence_length=13, step=9), dict(sequence_length=40),
    dict(sequence_length=5, stride=3, step=7), dict(sequence_length=10, stride=3, step=1),
])  # fmt: skip
def test_reader_pads(files, more) -> None:
    options = dict(filenames=[str(files / "a" / "vp9.webm")], labels=[5], enable_frame_num="sequence",
                   enable_timestamps=True, pad_mode="constant", fill_value=[1, 2, 3])  # fmt: skip
    theirs, ours = (outputs(lib, **options, **more) for lib in (dali, ndd))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        for x, y in zip(a, b, strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    "rounding", ["start_down_end_up", "start_up_end_down", "all_up", "all_down"]
)
def test_reader_takes_ranges(files, tmp_path, rounding) -> None:
    path = files / "a" / "vp9.webm"
    times, frames = tmp_path / "times", tmp_path / "frames"
    times.write_text(f"{path} 3\n{path} 4 0.21 0.63\n{path} 5 0.2 0.6\n")
    frames.write_text(f"{path} 3 2 6\n{path} 4 -5 -1\n{path} 6 4 -3\n")
    for listed, form in ((times, "timestamps"), (frames, "frames")):
        options = dict(file_list=str(listed), file_list_format=form, file_list_rounding=rounding,
                       sequence_length=1, enable_frame_num="scalar")  # fmt: skip
        theirs, ours = (outputs(lib, **options) for lib in (dali, ndd))
        assert [(int(a[1][0]), int(a[2][0])) for a in ours] == [
            (int(b[1][0]), int(b[2][0])) for b in theirs
        ]
