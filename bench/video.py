"""Videos: random clips of 16 frames → resize to 224×224 → normalise, with two threads.

Files are H.264 in MP4 (a key frame every 60 frames, two B-frames), and VP9 in WebM for the oracle,
whose CPU reader knows no H.264. The others decode a clip in each of two threads with one thread of
FFmpeg each, and resize and normalise with torch.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import ndd

from . import photos
from .harness import ROUNDS, Row, compare, optional, show

CLIPS, LENGTH, FRAMES, FILES = 8, 16, 180, 4
MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
# Readers make one or two batches ahead while others take their turn. A sample of a single batch
# would not count the work for it: the oracle seemed four times as fast on small videos.
SAMPLE_SECONDS = 4.0
Runs = dict[str, Callable[[], object]]


def write(path: Path, codec: str, width: int, height: int, seed: int) -> None:
    """A moving texture with some noise."""
    av = optional("av")
    rng = np.random.default_rng(seed)
    texture = rng.integers(0, 256, (height // 8 + 40, width // 8 + 40, 3)).astype(np.uint8)
    texture = texture.repeat(8, 0).repeat(8, 1)
    noise = rng.integers(0, 16, (4, height, width, 3)).astype(np.uint8)
    params = "keyint=60:bframes=2:threads=2:log-level=none"
    options = {"x264-params": params, "preset": "veryfast"} if codec == "libx264" else {
        "deadline": "realtime", "cpu-used": "8", "b": "2M"}  # fmt: skip
    with av.open(path, "w") as file:
        stream = file.add_stream(codec, rate=30, options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.gop_size = 60
        for k in range(FRAMES):
            pixels = texture[k : k + height, 2 * k % 300 : 2 * k % 300 + width] // 2 + noise[k % 4]
            file.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
        file.mux(stream.encode())


def _reader(lib: Any, files: list[str], seed: int) -> Any:
    return lib.experimental.readers.Video(
        CLIPS, filenames=files, sequence_length=LENGTH, step=7, random_shuffle=True, seed=seed,
    )  # fmt: skip


def _with_reader(lib: Any, files: list[str]) -> Callable[[], object]:
    context = lib.EvalContext(num_threads=2)
    reader = _reader(lib, files, 1)

    def batches() -> Iterator[object]:
        while True:
            for found in reader.next_epoch(batch_size=CLIPS):
                x = found[0] if isinstance(found, (tuple, list)) else found
                x = lib.resize(x, size=[224.0, 224.0])
                y = lib.crop_mirror_normalize(x, mean=MEAN, std=STD, output_layout="FCHW")
                del x, found
                yield y.evaluate()

    loop = batches()

    def once() -> object:
        with context:
            return next(loop)

    return once


def _random_clips(files: list[str]) -> Callable[[], list[tuple[str, int]]]:
    rng = np.random.default_rng(1)
    return lambda: [
        (files[int(rng.integers(len(files)))], int(rng.integers(0, FRAMES - LENGTH)))
        for _ in range(CLIPS)
    ]


def _by_torch(files: list[str], frames: Callable[[str, int], Any]) -> Callable[[], object]:
    """Resize and normalise what `frames(file, start)` gives as uint8 [F, C, H, W]."""
    torch = optional("torch")
    torch.set_num_threads(1)
    mean, std = (torch.tensor(v)[:, None, None] for v in (MEAN, STD))
    pool, choose = ThreadPoolExecutor(2), _random_clips(files)

    def one(clip: tuple[str, int]) -> Any:
        x = torch.nn.functional.interpolate(
            frames(*clip).float(), size=(224, 224), mode="bilinear", antialias=True
        )
        return (x - mean) / std

    return lambda: torch.stack(list(pool.map(one, choose())))


def _kept(opened: Callable[[str], Any]) -> Callable[[str], Any]:
    """Open each file once per thread: the best case of a library that keeps no index."""
    threads = threading.local()

    def get(file: str) -> Any:
        known: dict[str, Any] = threads.__dict__.setdefault("files", {})
        if file not in known:
            known[file] = opened(file)
        return known[file]

    return get


def _peers(files: list[str]) -> Runs:
    torch, found = optional("torch"), Runs()
    if torch is None:
        return found
    decord = optional("decord")
    if decord is not None:
        decord_reader = _kept(lambda file: decord.VideoReader(file, num_threads=1))

        def by_decord(file: str, start: int) -> Any:
            pixels = decord_reader(file).get_batch(range(start, start + LENGTH)).asnumpy()
            return torch.from_numpy(pixels).permute(0, 3, 1, 2)

        found["decord + torch"] = _by_torch(files, by_decord)
    try:
        codec = optional("torchcodec.decoders")
    except (OSError, RuntimeError) as error:  # it needs libraries of FFmpeg on the system
        print(f"torchcodec does not load: {str(error).splitlines()[0][:100]}")
        codec = None
    if codec is not None:
        decoder = _kept(lambda file: codec.VideoDecoder(file, num_ffmpeg_threads=1))

        def by_torchcodec(file: str, start: int) -> Any:
            return decoder(file).get_frames_in_range(start, start + LENGTH).data

        found["torchcodec + torch"] = _by_torch(files, by_torchcodec)
    found["PyAV + torch"] = _by_torch(files, _by_pyav)
    return found


def _by_pyav(file: str, start: int) -> Any:
    """A plain loop: seek to the key frame before, decode, convert."""
    av, torch = optional("av"), optional("torch")
    found: list[Any] = []
    with av.open(file) as container:
        stream = container.streams.video[0]
        stream.thread_count = 1
        step = 1 / (stream.average_rate * stream.time_base)
        container.seek(int(start * step), stream=stream)
        for frame in container.decode(stream):
            if frame.pts >= int(start * step):
                found.append(frame.to_ndarray(format="rgb24"))
            if len(found) == LENGTH:
                break
    return torch.from_numpy(np.stack(found)).permute(0, 3, 1, 2)


def clips(width: int, height: int, codec: str, rounds: int) -> list[Row]:
    if optional("av") is None:
        return []
    files = made_files(width, height, codec)
    runs: Runs = {"ndd": _with_reader(ndd, files)}
    if codec == "libx264":
        runs |= _peers(files)
    else:
        dali = optional("nvidia.dali.experimental.dynamic")
        if dali is not None:
            runs["oracle"] = _with_reader(dali, files)
    what = "H.264" if codec == "libx264" else "VP9"
    title = f"{CLIPS} random clips of {LENGTH} frames, {what} {width}×{height}, 2 threads"
    return compare(title, runs, rounds, seconds=SAMPLE_SECONDS)


def made_files(width: int, height: int, codec: str) -> list[str]:
    """The files of a workload, which are kept, because VP9 takes long to encode."""
    place = photos.folder() / "videos"
    place.mkdir(parents=True, exist_ok=True)
    suffix = "mp4" if codec == "libx264" else "webm"
    files = [place / f"{width}x{height}-{k}.{suffix}" for k in range(FILES)]
    for k, file in enumerate(files):
        if not file.exists():
            partial = file.with_stem(f"{file.stem}-partial")
            write(partial, codec, width, height, k)
            partial.rename(file)
    return [str(f) for f in files]


def growth(batches: int = 60) -> Row:
    """Megabytes that this process grows by while it reads so many batches."""
    once = _with_reader(ndd, made_files(1280, 720, "libx264"))
    process = psutil.Process()
    for _ in range(20):
        once()
    before = process.memory_info().rss
    for _ in range(batches):
        once()
    grown = (process.memory_info().rss - before) / 1e6
    return Row(
        f"memory after {batches} more batches of {CLIPS} clips, 1280×720", "ndd", grown, "MB"
    )


def start_up(count: int = 10_000) -> tuple[float, float]:
    """Seconds to list `count` files without and with their indexes on disk."""
    with tempfile.TemporaryDirectory() as place:
        write_small = Path(place) / "0.mp4"
        _small(write_small)
        content = write_small.read_bytes()
        files = [f"{place}/{k}.mp4" for k in range(count)]
        for file in files:
            Path(file).write_bytes(content)
        seconds = []
        for _ in range(2):
            begin = time.perf_counter()
            ndd.experimental.readers.Video(filenames=files, sequence_length=8)
            seconds.append(time.perf_counter() - begin)
        return seconds[0], seconds[1]


def _small(path: Path) -> None:
    av = optional("av")
    with av.open(path, "w") as file:
        stream = file.add_stream("libx264", rate=30, options={"x264-params": "log-level=none"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for k in range(32):
            pixels = np.full((48, 64, 3), 5 * k, np.uint8)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
        file.mux(stream.encode())


def main(rounds: int = ROUNDS) -> list[Row]:
    rows: list[Row] = []
    for codec in ("libx264", "libvpx-vp9"):
        for width, height in ((320, 240), (1280, 720)):
            part = clips(width, height, codec, rounds)
            show(part, "oracle" if codec == "libvpx-vp9" else "PyAV + torch", 1e3, "ms")
            rows += part
    rows.append(growth())
    cold, warm = start_up()
    rows += [Row("listing 10,000 videos", f"ndd, {how} indexes", seconds)
             for how, seconds in (("without", cold), ("with", warm))]  # fmt: skip
    for row in rows[-3:]:
        print(f"{row.workload}: {row.name} {row.value:.2f} {row.unit}")
    return rows
