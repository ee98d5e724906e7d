"""Small videos of every codec that the wheel of PyAV encodes, made once per process."""

from __future__ import annotations

import io
import os
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

FRAMES, HEIGHT, WIDTH = 30, 36, 64
# SWS_BILINEAR | SWS_FULL_CHR_H_INT | SWS_ACCURATE_RND
EXACT = 0x2 | 0x2000 | 0x40000
_X264 = "keyint=10:bframes=3:scenecut=0:threads=1:log-level=none"
_X265 = "keyint=10:bframes=3:open-gop=1:pools=1:frame-threads=1:log-level=none"

# name → container, encoder, its options, pixel format
CLIPS: dict[str, tuple[str, str, dict[str, str], str]] = {
    "h264-open.mp4": ("mp4", "libx264", {"x264-params": _X264 + ":open-gop=1"}, "yuv420p"),
    "h264.mkv": ("matroska", "libx264", {"x264-params": _X264}, "yuv420p"),
    "h264.avi": ("avi", "libx264", {"x264-params": _X264}, "yuv420p"),
    "h264.ts": ("mpegts", "libx264", {"x264-params": _X264 + ":open-gop=1"}, "yuv420p"),
    "h264-444.mp4": ("mp4", "libx264", {"x264-params": _X264}, "yuv444p"),
    "h264-fields.mp4": ("mp4", "libx264", {"x264-params": _X264 + ":interlaced=1"}, "yuv420p"),
    "h264-full.mp4": (
        "mp4",
        "libx264",
        {"x264-params": _X264 + ":colormatrix=bt709:fullrange=on"},
        "yuv420p",
    ),
    "h264-refresh.mp4": (
        "mp4",
        "libx264",
        {"x264-params": _X264.replace("bframes=3", "bframes=0:intra-refresh=1")},
        "yuv420p",
    ),
    "hevc.mp4": ("mp4", "libx265", {"x265-params": _X265}, "yuv420p"),
    "vp8.webm": ("webm", "libvpx", {"auto-alt-ref": "1", "lag-in-frames": "10"}, "yuv420p"),
    "vp9.webm": ("webm", "libvpx-vp9", {"auto-alt-ref": "1", "lag-in-frames": "16"}, "yuv420p"),
    "vp9.mp4": ("mp4", "libvpx-vp9", {}, "yuv420p"),
    "av1.mkv": ("matroska", "libsvtav1", {"svtav1-params": "lp=1", "preset": "12"}, "yuv420p"),
    "mpeg4.avi": ("avi", "mpeg4", {"bf": "2"}, "yuv420p"),
    "mpeg4.mp4": ("mp4", "mpeg4", {"bf": "2"}, "yuv420p"),
    "mjpeg.avi": ("avi", "mjpeg", {}, "yuvj420p"),
    "mjpeg.mp4": ("mp4", "mjpeg", {}, "yuvj422p"),
    "vfr.mp4": ("mp4", "libx264", {"x264-params": _X264}, "yuv420p"),
    "vfr.mkv": ("matroska", "libx264", {"x264-params": _X264}, "yuv420p"),
    "rotated.mp4": ("mp4", "libx264", {"x264-params": _X264}, "yuv420p"),
}


def drawn(number: int) -> Any:
    """A picture that differs from all others, with coloured edges."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    picture = np.stack([x * 3 + number * 5, y * 4 + number * 3, y * 0 + number * 7], -1) % 256
    picture[4:20, number : number + 12] = (250, 20, 60)
    return picture.astype(np.uint8)


@cache
def clip(name: str, frames: int = FRAMES) -> bytes:
    """The bytes of a file."""
    import av

    os.environ.setdefault("SVT_LOG", "1")  # the AV1 encoder tells only errors
    scheduling = os.sched_getscheduler(0), os.sched_getparam(0)
    container, codec, options, pixels = CLIPS[name]
    times = [40 * k for k in range(frames)]
    if name.startswith("vfr"):
        gaps = np.random.default_rng(0).integers(10, 90, frames)
        times = [0, *np.cumsum(gaps)[:-1].tolist()]
    unit = Fraction(1, 1000) if name.startswith("vfr") else Fraction(1, 25)
    found = io.BytesIO()
    with av.open(found, "w", format=container) as file:
        stream: Any = file.add_stream(codec, rate=1 / unit, options=options)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, pixels
        stream.codec_context.gop_size = 10
        stream.codec_context.time_base = unit
        if name.startswith("rotated"):
            stream.set_display_rotation(90)
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(drawn(number), "rgb24").reformat(format=pixels)
            frame.pts, frame.time_base = int(Fraction(times[number], 1000) / unit), unit
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    # For root, the AV1 encoder makes the calling thread a real-time one, which starves all others.
    os.sched_setscheduler(0, *scheduling)
    return found.getvalue()


def encoded(name: str, frames: int = FRAMES) -> Any:
    return np.frombuffer(clip(name, frames), np.uint8)


@cache
def by_ffmpeg(name: str, frames: int = FRAMES) -> tuple[Any, list[float]]:
    """All frames and their times in seconds, as FFmpeg decodes the file from its begin to its end."""
    import av
    from av.video.reformatter import VideoReformatter

    convert = VideoReformatter()
    pixels, times = [], []
    with av.open(io.BytesIO(clip(name, frames))) as file:
        for frame in file.decode(video=0):
            made = convert.reformat(frame, format="rgb24", interpolation=EXACT)
            pixels.append(made.to_ndarray())
            times.append(float(frame.pts * frame.time_base))
    return np.stack(pixels), times
