"""decoders.video: frames equal FFmpeg's own output, frame number by frame number, in every codec and container."""

from __future__ import annotations

import io
from typing import Any

import av
import numpy as np
import pytest

import ndd
from ndd.codecs.video import decoded_videos, index_cache, to_rgb
from ndd.codecs.video.cursor import Cursor
from ndd.codecs.video.video_index import build_index
from tests.helpers import arrays

from .clips import CLIPS, FRAMES, HEIGHT, WIDTH, by_ffmpeg, clip, encoded


@pytest.fixture
def decoded_frames(monkeypatch):
    """The frames that are decoded: (sample, frame) of each."""
    seen: list[tuple[int, int]] = []
    original = decoded_videos.Videos.decode_frame

    def spy(self, sample, frame, *to):
        seen.append((sample, int(self.clips[sample].frames[frame])))
        original(self, sample, frame, *to)

    monkeypatch.setattr(decoded_videos.Videos, "decode_frame", spy)
    return seen


@pytest.mark.parametrize("name", CLIPS)
def test_frames_are_those_of_ffmpeg(name) -> None:
    want, times = by_ffmpeg(name)
    video = ndd.decoders.video(ndd.tensor(encoded(name)))
    assert video.shape == (FRAMES, HEIGHT, WIDTH, 3) and video.layout == "FHWC"
    np.testing.assert_array_equal(np.asarray(video), want)
    index = build_index(encoded(name))
    assert (index.blob is not None) == name.endswith(".ts")
    if name != "h264.avi":  # has no times; FFmpeg guesses them
        assert index.seconds().tolist() == times
    else:
        assert index.seconds().tolist() == [k / 25 for k in range(FRAMES)]


@pytest.mark.parametrize("name", CLIPS)
def test_random_access_is_exact(name) -> None:
    """Any frames in any order, with the decoder at any place, and with pictures left out on the way."""
    want, _ = by_ffmpeg(name)
    index, rng = build_index(encoded(name)), np.random.default_rng(5)
    for trial in range(6):
        at = Cursor(index, encoded(name))
        chosen = rng.choice(FRAMES, 5, replace=False)
        if trial % 2:
            at.wanted = set(chosen.tolist())
        for number in chosen if trial > 2 else np.sort(chosen):
            picture = at.picture(int(number))
            out = np.empty((HEIGHT, WIDTH, 3), np.uint8)
            decoded_videos._converter().write(picture, out, index.stream)
            np.testing.assert_array_equal(out, want[number])


def test_frames_of_open_groups_start_one_key_frame_earlier() -> None:
    index = build_index(encoded("h264-open.mp4"))
    assert len(np.unique(index.frame_key)) > 2
    rank = index.packet_frame
    for frame, (packet, key) in enumerate(zip(index.frame_packet, index.frame_key, strict=True)):
        assert key <= packet and rank[key] <= frame
    behind = [f for f in range(FRAMES) if any(index.frame_key[f] < k <= index.frame_packet[f]
              for k in np.unique(index.frame_key))]  # fmt: skip
    assert behind  # otherwise the clip has no open group


def test_batches_of_different_videos() -> None:
    names = ["h264-open.mp4", "vp9.webm", "mjpeg.mp4"]
    files = ndd.batch([encoded(n) for n in names])
    found = arrays(ndd.decoders.video(files, start_frame=ndd.batch([3, 0, 20]),
                                      sequence_length=ndd.batch([4, 2, 12]), stride=2))  # fmt: skip
    wants = [by_ffmpeg(n)[0] for n in names]
    np.testing.assert_array_equal(found[0], wants[0][3:11:2])
    np.testing.assert_array_equal(found[1], wants[1][0:4:2])
    np.testing.assert_array_equal(found[2][:5], wants[2][20::2])
    assert found[2].shape[0] == 12 and not found[2][5:].any()


# -- laziness --------------------------------------------------------------------------------------


def _program(video):
    small = ndd.resize(video, size=[24, 20])
    return ndd.crop_mirror_normalize(small, mean=[1, 2, 3], std=[4, 5, 6], output_layout="FCHW")


def test_slices_strides_and_orders_decode_only_what_they_use(decoded_frames) -> None:
    want = by_ffmpeg("h264-open.mp4")[0]
    data = ndd.tensor(encoded("h264-open.mp4"))
    cases = [
        (lambda v: v[4:9], range(4, 9)),
        (lambda v: v[3:20:5], range(3, 20, 5)),
        (lambda v: v[::-7], sorted(range(29, -1, -7))),
        (lambda v: ndd.sequence_rearrange(v, new_order=[9, 2, 9, 28]), [2, 9, 9, 28]),
        (lambda v: _program(v)[5:7], [5, 6]),
        (lambda v: _program(v[5:7]), [5, 6]),
        (lambda v: _program(ndd.sequence_rearrange(v, new_order=[9, 2, 9])), [2, 9, 9]),
    ]
    for program, frames in cases:
        decoded_frames.clear()
        with ndd.EvalMode.deferred:
            found = np.asarray(program(ndd.decoders.video(data)))
            plain = np.asarray(program(ndd.tensor(want, layout="FHWC")))
        np.testing.assert_array_equal(found, plain)
        assert sorted(f for _, f in decoded_frames) == list(frames)


PROGRAMS = {
    "fused": _program,
    "arithmetic": lambda v: ndd.flip(ndd.resize(v, size=[24, 20]) * 2 + 1.5, horizontal=1),
    "transposed": lambda v: ndd.transpose(ndd.color_twist(v, hue=20, contrast=1.5), perm=[3, 0, 1, 2]),
    "blurred": lambda v: ndd.gaussian_blur(ndd.warp_affine(v, matrix=[[1, 0.1, 2], [0, 1, 1]]), sigma=1.0),
    "cropped": lambda v: ndd.crop(v, crop=[10, 12]),
    "padded": lambda v: ndd.slice(v, start=[-2], end=[FRAMES + 3], axes=[0], out_of_bounds_policy="pad"),
    "mixed": lambda v: ndd.reductions.mean(v, axes=[0]),
    "normalized": lambda v: ndd.normalize(ndd.resize(v, size=[12, 10]), axes=[1, 2]),
    "per frame": lambda v: ndd.rotate(v, angle=ndd.per_frame(np.arange(FRAMES, dtype=np.float32))),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_by_frame_give_the_same_as_on_whole_sequences(name) -> None:
    """Batches, whose videos may have different frame counts, go frame by frame or as a whole: the same bits."""
    program = PROGRAMS[name]
    names = ["h264-open.mp4", "mjpeg.avi"]
    wants = [by_ffmpeg(n)[0] for n in names]
    found = arrays(program(ndd.decoders.video(ndd.batch([encoded(n) for n in names]))))
    plain = arrays(program(ndd.batch(wants, layout="FHWC")))
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_array_equal(a, b)


def test_no_sequence_of_full_size_is_in_memory(monkeypatch) -> None:
    from ndd.fusion.run import frame_pipeline

    taken = []
    take = frame_pipeline.POOL.take
    monkeypatch.setattr(frame_pipeline, "POOL", _Pool(lambda n: taken.append(n) or take(n)))
    data = ndd.tensor(encoded("h264-open.mp4"))
    with ndd.EvalMode.deferred:
        np.asarray(_program(ndd.decoders.video(data)))
    assert taken and max(taken) < FRAMES * HEIGHT * WIDTH * 3 // 4


class _Pool:
    def __init__(self, take) -> None:
        self.take = take


@pytest.mark.parametrize("mode", ["eager", "deferred", "sync_cpu", "sync_full"])
def test_modes(mode) -> None:
    want = by_ffmpeg("vp9.webm")[0]
    with getattr(ndd.EvalMode, mode):
        video = ndd.decoders.video(ndd.tensor(encoded("vp9.webm")))
        small = ndd.resize(video, size=[24, 20])
        np.testing.assert_array_equal(np.asarray(small[2:4]), np.asarray(
            ndd.resize(ndd.tensor(want, layout="FHWC"), size=[24, 20]))[2:4])  # fmt: skip
        np.testing.assert_array_equal(np.asarray(video), want)


def test_on_the_simulated_gpu(monkeypatch) -> None:
    monkeypatch.setenv("NDD_GPU", "simulate")
    video = ndd.decoders.video(ndd.tensor(encoded("vp9.webm")), device="gpu")
    assert video.device.device_type == "gpu"
    part = video[3:5]
    np.testing.assert_array_equal(np.asarray(part.cpu()), by_ffmpeg("vp9.webm")[0][3:5])


# -- errors and claims -----------------------------------------------------------------------------


def test_arguments_are_checked() -> None:
    data = ndd.tensor(encoded("mjpeg.avi"))
    cases = [
        (dict(frames=[1], stride=2), "`frames` and `stride` exclude each other"),
        (dict(end_frame=3, sequence_length=2), "`end_frame` and `sequence_length` exclude"),
        (dict(stride=0), "`stride` must be positive, got 0"),
        (dict(start_frame=30), "`start_frame` is 30, but the video has 30 frames, sample 0"),
        (dict(start_frame=5, end_frame=5), "`end_frame` is 5, but `start_frame` is 5"),
        (dict(frames=[3, 30], pad_mode="none"), "`frames` names frame 30 of a video with 30"),
        (dict(pad_mode="mirror"), "`pad_mode`"),
        (dict(fill_value=[1, 2]), "`fill_value` must be 1 or 3 numbers from 0 to 255"),
        (dict(sequence_length=-1), "`sequence_length` must not be negative"),
        (dict(sequence_length=1 << 40), "too many"),
    ]
    for options, message in cases:
        with pytest.raises((ValueError, TypeError, OverflowError), match=message):
            ndd.decoders.video(data, **options)


def test_no_video() -> None:
    for content in (b"", b"no video", b"RIFF" + bytes(40), clip("mjpeg.avi")[:200]):
        with pytest.raises(
            ValueError, match=r"decoders.video: sample 0: .*(not a video|damaged|tells|size)"
        ):
            ndd.decoders.video(ndd.tensor(np.frombuffer(content, np.uint8)))
    playlist = b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///etc/passwd\n"
    with pytest.raises(ValueError, match="not a video file"):
        ndd.decoders.video(ndd.tensor(np.frombuffer(playlist, np.uint8)))


@pytest.mark.parametrize("constant", [0, 1])
def test_a_billion_claimed_frames_allocate_nothing(constant) -> None:
    import resource

    data = bytearray(clip("mjpeg.mp4"))
    at = data.index(b"stsz")
    data[at + 8 : at + 16] = constant.to_bytes(4, "big") + (10**9).to_bytes(4, "big")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match="the header tells 1000000000 frames, the file has"):
        ndd.decoders.video(ndd.tensor(np.frombuffer(data, np.uint8)))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_a_damaged_frame_is_named_and_the_session_goes_on() -> None:
    data = encoded("mjpeg.avi").copy()
    index = build_index(data)
    at, size = int(index.packet_at[7]), int(index.packet_size[7])
    data[at : at + size] = 0
    with pytest.raises(ValueError, match=r"decoders.video: sample 0: frame 7 "):
        np.asarray(ndd.decoders.video(ndd.tensor(data)))
    want = by_ffmpeg("mjpeg.avi")[0]
    np.testing.assert_array_equal(np.asarray(ndd.decoders.video(ndd.tensor(data))[8:]), want[8:])
    ndd.decoders.errors.clear()
    filled = np.asarray(ndd.decoders.video(ndd.tensor(data), on_error="fill"))
    np.testing.assert_array_equal(np.delete(filled, 7, axis=0), np.delete(want, 7, axis=0))
    assert not filled[7].any() and len(ndd.decoders.errors) == 1
    ndd.decoders.errors.clear()


# -- the index on disk -----------------------------------------------------------------------------


def test_an_index_is_made_once_and_mapped(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("NDD_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "clip.mkv"
    path.write_bytes(encoded("h264.mkv").tobytes())
    made = []
    build = index_cache.build_index
    monkeypatch.setattr(index_cache, "build_index", lambda d: made.append(1) or build(d))
    name = str(path).encode()
    assert index_cache.known(name).frames == FRAMES and len(made) == 1
    index_cache._loaded.clear()
    assert index_cache.known(name) == (FRAMES, 25.0)
    first = index_cache.index_of_file(name)
    assert len(made) == 1 and not first.frame_time.flags.writeable
    whole = build(encoded("h264.mkv"))
    for field in ("frame_packet", "frame_key", "frame_time", "packet_at", "packet_size"):
        np.testing.assert_array_equal(getattr(first, field), getattr(whole, field))
    assert first.extradata == whole.extradata
    # A damaged index is made anew, and so is that of a changed file.
    (stored,) = (tmp_path / "cache" / "videos").iterdir()
    stored.write_bytes(stored.read_bytes()[:-8])
    index_cache._loaded.clear()
    assert index_cache.index_of_file(name).frames == FRAMES and len(made) == 2
    path.write_bytes(clip("mjpeg.avi"))
    assert index_cache.index_of_file(name).codec == "mjpeg" and len(made) == 3


def test_without_the_package(monkeypatch) -> None:
    import sys

    from ndd.codecs.video.library import av_module

    av_module.cache_clear()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ImportError, match=r'pip install "ndd-fusion\[video\]"'):
        build_index(encoded("mjpeg.avi"))
    monkeypatch.undo()
    av_module.cache_clear()  # type: ignore[attr-defined]


def test_a_file_over_memory() -> None:
    from ndd.codecs.video.library import _Bytes

    ours, theirs = _Bytes(np.arange(9, dtype=np.uint8)), io.BytesIO(bytes(range(9)))
    for act in (lambda f: f.read(4), lambda f: f.seek(-3, 2), lambda f: f.read(), lambda f: f.read(2),
                lambda f: f.seek(2), lambda f: f.seek(1, 1), lambda f: f.read(1), lambda f: f.tell()):  # fmt: skip
        assert act(ours) == act(theirs)


# -- RGB -------------------------------------------------------------------------------------------


def _picture(height: int, width: int, colours: int, levels: int, kind: str) -> Any:
    """Noise with the numbers of its colour space and of its range."""
    frame = av.VideoFrame(width, height, kind)
    rng = np.random.default_rng(height * width)
    for plane in frame.planes:
        plane.update(rng.integers(0, 256, plane.buffer_size).astype(np.uint8).tobytes())
    frame.colorspace, frame.color_range = colours, levels
    return frame


def test_colours_are_those_of_swscale() -> None:
    """All colour spaces and ranges, with the places of colours that H.264 and VP9 have; sizes without vectors, too."""
    converter, seen = to_rgb.Converter(), set()
    for colours in to_rgb._SHARES:
        for levels, kind in ((0, "yuv420p"), (1, "yuv420p"), (2, "yuv420p"), (0, "yuvj420p")):
            for size in ((8, 2), (10, 18), (8, 20), (62, 386), (6, 18), (9, 7)):
                picture = _picture(*size, colours, levels, kind)
                want = converter._scaled(picture)
                to_rgb._sites.clear()
                for _ in range(2):  # learns from the first picture
                    found = np.zeros_like(want)
                    converter.write(picture, found, "noise")
                    np.testing.assert_array_equal(found, want)
                seen.add(to_rgb._sites.get("noise"))
                for place in ("between columns", to_rgb._ELSEWHERE):
                    found = np.zeros_like(want[1:])
                    to_rgb._sites["noise"] = place
                    converter.write(picture, found, "noise", 1)
                    np.testing.assert_array_equal(found, want[1:])
    assert seen == {"between columns", None}  # narrow pictures fit both places, others need swscale
    to_rgb._sites.clear()


def test_a_converter_takes_pictures_of_all_kinds() -> None:
    """What swscale and the helper know of one picture must not be used for another."""
    converter = to_rgb.Converter()
    to_rgb._sites.clear()
    for name in (
        "h264.mkv",
        "h264-fields.mp4",
        "vp9.webm",
        "h264-full.mp4",
        "h264-444.mp4",
        "h264.ts",
    ):
        index = build_index(encoded(name))
        found = np.empty((HEIGHT, WIDTH, 3), np.uint8)
        converter.write(Cursor(index, encoded(name)).picture(4), found, index.stream)
        np.testing.assert_array_equal(found, by_ffmpeg(name)[0][4])


@pytest.mark.parametrize("name", ["h264.mkv", "hevc.mp4", "mpeg4.mp4", "vp9.webm", "mjpeg.avi"])
def test_most_pictures_need_no_swscale(name, monkeypatch) -> None:
    calls = []
    scaled = to_rgb.Converter._scaled
    monkeypatch.setattr(
        to_rgb.Converter, "_scaled", lambda self, *p: calls.append(1) or scaled(self, *p)
    )
    to_rgb._sites.clear()
    found = np.asarray(ndd.crop(ndd.decoders.video(ndd.tensor(encoded(name))), crop=[7, 30]))
    np.testing.assert_array_equal(
        found, np.asarray(ndd.crop(ndd.tensor(by_ffmpeg(name)[0], layout="FHWC"), crop=[7, 30]))
    )
    assert 1 <= len(calls) <= 2  # one for each thread
