"""Readers of videos: arguments, laziness, errors, resizing."""

from __future__ import annotations

import numpy as np
import pytest

import ndd
from ndd.codecs.video import decoded_videos
from tests.decoders.clips import FRAMES, HEIGHT, WIDTH, by_ffmpeg, encoded
from tests.helpers import arrays


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    for label, names in (("a", ["h264-open.mp4"]), ("b", ["mjpeg.avi", "vfr.mp4"])):
        (folder / label).mkdir()
        for name in names:
            (folder / label / name).write_bytes(encoded(name).tobytes())
    (folder / "b" / "notes.txt").write_text("no video")
    return folder


def test_frames_labels_numbers_and_times(root) -> None:
    reader = ndd.readers.Video(
        file_root=root, sequence_length=10, enable_frame_num="sequence", enable_timestamps=True
    )
    names = ["h264-open.mp4"] * 3 + ["mjpeg.avi"] * 3 + ["vfr.mp4"] * 3
    at = 0
    for videos, labels, numbers, times in reader.next_epoch(batch_size=3):
        assert videos.layout == "FHWC"
        for k, video in enumerate(arrays(videos)):
            pixels, seconds = by_ffmpeg(names[at])
            first = 10 * (at % 3)
            np.testing.assert_array_equal(video, pixels[first : first + 10])
            assert np.asarray(labels.tensors[k]).tolist() == [int(at > 2)]
            assert np.asarray(numbers.tensors[k]).tolist() == list(range(first, first + 10))
            assert np.asarray(times.tensors[k]).tolist() == seconds[first : first + 10]
            at += 1
    assert at == 9


def test_sequences_are_padded(root) -> None:
    path = root / "b" / "mjpeg.avi"
    reader = ndd.readers.Video(filenames=[path], sequence_length=20, pad_sequences=True,
                               enable_frame_num="sequence", enable_timestamps=True)  # fmt: skip
    *_, (video, numbers, times) = reader.next_epoch()
    found = np.asarray(video)
    np.testing.assert_array_equal(found[:10], by_ffmpeg("mjpeg.avi")[0][20:])
    assert not found[10:].any()
    assert np.asarray(numbers).tolist() == [*range(20, 30), *[-1] * 10]
    assert np.asarray(times).tolist()[10:] == [-1.0] * 10


def test_only_what_a_loop_uses_is_decoded(root, monkeypatch) -> None:
    seen = []
    original = decoded_videos.Videos.decode_frame

    def spy(self, sample, frame, *to):
        seen.append(int(self.clips[sample].frames[frame]))
        original(self, sample, frame, *to)

    monkeypatch.setattr(decoded_videos.Videos, "decode_frame", spy)
    reader = ndd.experimental.readers.Video(
        filenames=[root / "a" / "h264-open.mp4"], sequence_length=FRAMES, enable_frame_num=True
    )
    for videos, _ in reader.next_epoch(batch_size=1, prefetch=0):
        part = ndd.resize(videos, size=[8, 10]).slice[3:9:2]
        assert part.shape == [(3, 8, 10, 3)]
        del videos
        arrays(part)
    assert set(seen) >= {3, 5, 7} and len(seen) <= FRAMES
    seen.clear()
    for _videos, numbers in reader.next_epoch(batch_size=1, prefetch=0):
        arrays(numbers)
    assert not seen


def test_resized(root) -> None:
    options = dict(file_root=root, sequence_length=15, stride=2)
    plain = [arrays(v) for v, _ in ndd.readers.Video(**options).next_epoch(batch_size=3)]
    resized = ndd.readers.VideoResize(
        **options, resize_shorter=18, interp_type=ndd.types.INTERP_CUBIC, dtype=ndd.float32,
        normalized=True,
    )  # fmt: skip
    for whole, (videos, _) in zip(plain, resized.next_epoch(batch_size=3), strict=True):
        assert videos.dtype == ndd.float32
        want = ndd.resize(ndd.batch(whole, layout="FHWC"), resize_shorter=18,
                          interp_type=ndd.types.INTERP_CUBIC, dtype=ndd.float32)  # fmt: skip
        for a, b in zip(arrays(videos), arrays(want), strict=True):
            assert a.shape == (15, 18, 32, 3)
            np.testing.assert_allclose(a, b / 255, atol=1e-6)
    sizes = ndd.batch([[10.0, 12.0], [14.0, 16.0]])
    videos, _ = ndd.readers.VideoResize(**options)(batch_size=2, size=sizes)
    assert videos.shape == [(15, 10, 12, 3), (15, 14, 16, 3)]
    with pytest.raises(TypeError, match="sice"):
        ndd.readers.VideoResize(**options)(batch_size=2, sice=sizes)


def test_types_and_colours(root) -> None:
    path = root / "b" / "mjpeg.avi"
    want = by_ffmpeg("mjpeg.avi")[0][:2]
    (video,) = ndd.readers.Video(filenames=path, sequence_length=2, dtype=ndd.float32)()
    assert video.dtype == ndd.float32
    np.testing.assert_array_equal(np.asarray(video), want.astype(np.float32))
    (video,) = ndd.readers.Video(filenames=path, sequence_length=2, image_type=ndd.types.YCbCr)()
    plain = ndd.color_space_conversion(ndd.tensor(want, layout="FHWC"), image_type=ndd.types.RGB,
                                       output_type=ndd.types.YCbCr)  # fmt: skip
    assert np.abs(np.asarray(video).astype(int) - np.asarray(plain)).max() <= 1


def test_ranges_by_frame_rate(root, tmp_path) -> None:
    path = root / "a" / "h264-open.mp4"
    listed = tmp_path / "list"
    listed.write_text(f"{path} 1 0.21 0.63\n{path} 2 -5 -1\n")
    for options, want in (
        ({}, {1: range(6, 15)}),
        ({"file_list_include_preceding_frame": True}, {1: range(5, 16)}),
        ({"file_list_frame_num": True}, {2: range(25, 29)}),
    ):
        with pytest.warns(UserWarning, match="has no frames"):
            reader = ndd.readers.Video(
                file_list=listed, sequence_length=1, enable_frame_num=True, **options
            )
        found: dict[int, list[int]] = {}
        for _, label, number in reader.next_epoch():
            found.setdefault(label.item(), []).append(number.item())
        assert found == {k: list(v) for k, v in want.items()}


def test_damaged_files(root, tmp_path) -> None:
    good, bad, spoilt = (tmp_path / f"{n}.avi" for n in ("good", "bad", "spoilt"))
    data = encoded("mjpeg.avi").copy()
    good.write_bytes(data.tobytes())
    bad.write_bytes(b"no video")
    from ndd.codecs.video.video_index import build_index

    index = build_index(data)
    at, size = int(index.packet_at[17]), int(index.packet_size[17])
    data[at : at + size] = 0
    spoilt.write_bytes(data.tobytes())
    with pytest.raises(ValueError, match=r"readers.Video: cannot read .*bad.avi': .*not a video"):
        ndd.readers.Video(filenames=[good, bad], sequence_length=10)
    reader = ndd.readers.Video(filenames=[spoilt], sequence_length=10, enable_frame_num=True)
    with pytest.raises(ValueError, match=r"readers.Video: sample 1 \(.*spoilt.avi\): frame 17 "):
        for videos, _ in reader.next_epoch(batch_size=3):
            arrays(videos)
    with pytest.warns(UserWarning, match="bad.avi' is left out"):
        reader = ndd.readers.Video(filenames=[spoilt, bad, good], sequence_length=10,
                                   enable_frame_num=True, on_error="skip")  # fmt: skip
    numbers = [(n.item(), np.asarray(v).shape[0]) for v, n in reader.next_epoch()]
    assert numbers == [(0, 10), (20, 10), (20, 10), (0, 10), (10, 10), (20, 10)]
    assert {e.file for e in reader.errors} == {str(spoilt), str(bad)}
    reader = ndd.readers.Video(filenames=[spoilt], sequence_length=10, on_error="fill")
    assert [np.asarray(v).shape[0] for (v,) in reader.next_epoch()] == [10, 0, 10]


def test_arguments_are_checked(root) -> None:
    path = root / "b" / "mjpeg.avi"
    video, experimental = ndd.readers.Video, ndd.experimental.readers.Video
    for make, options, message in (
        (video, dict(filenames=path), "`sequence_length` is needed"),
        (video, dict(sequence_length=2), "exactly one of `filenames`, `file_root` and `file_list`"),
        (video, dict(filenames=path, sequence_length=0), "`sequence_length` must be positive"),
        (video, dict(filenames=path, sequence_length=2, step=0), "`step` must not be 0"),
        (video, dict(filenames=path, sequence_length=2, channels=1), "`channels` must be 3"),
        (
            video,
            dict(filenames=path, sequence_length=2, dtype=ndd.int16),
            "`dtype` must be uint8 or",
        ),
        (video, dict(filenames=path, sequence_length=2, normalized=True), "`normalized` needs"),
        (video, dict(filenames=path, sequence_length=31), "no samples were found"),
        (video, dict(filenames="s3://a/b.mp4", sequence_length=1), "local files"),
        (
            video,
            dict(filenames=path, sequence_length=2, enable_frame_num="all"),
            "`enable_frame_num`",
        ),
        (
            experimental,
            dict(filenames=path, sequence_length=2, pad_mode="x"),
            "`pad_mode` must be one",
        ),
        (experimental, dict(filenames=path, sequence_length=2, file_list_rounding="x"), "rounding"),
        (
            experimental,
            dict(filenames=path, sequence_length=2, image_type=ndd.types.GRAY),
            "RGB or",
        ),
        (experimental, dict(filenames=path, sequence_lenght=2), "sequence_length"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            make(**options)


def test_one_video_is_decoded_by_all_threads(root, monkeypatch) -> None:
    """A long video is cut at key frames, and the longest parts come first."""
    from ndd.codecs.video.decoded_videos import Clip, Videos
    from ndd.codecs.video.video_index import build_index

    index = build_index(encoded("h264-open.mp4"))
    monkeypatch.setattr(decoded_videos, "MIN_PACKETS", 1)
    videos = Videos(
        [Clip(index, lambda: encoded("h264-open.mp4"), np.arange(FRAMES))], (0, 0, 0), print
    )
    runs = videos.runs(np.zeros(FRAMES, np.int64), np.arange(FRAMES))
    assert len(runs) == len(np.unique(index.frame_key)) > 2
    assert sorted(f for begin, end in runs for f in range(begin, end)) == list(range(FRAMES))
    assert (HEIGHT, WIDTH) == (index.height, index.width)
