"""Our claims about single ops on one thread, by workload: the peers, and the least ratio to each.

A ratio is how many times as long the peer takes. Reading the bytes once is a peer of reductions:
they may take 1.5 times as long.
"""

from __future__ import annotations

from collections.abc import Iterator

from . import boxes, codecs, debayer, histograms, morphology, neighbourhoods, reductions, resample

# (what is claimed, beginning of the workload's name, peer, least ratio)
Claim = tuple[str, str, str, float]
READ = "read (NumPy's max)"
TORCH, SOXR, SOUNDFILE = "torch.stft + threads", "soxr HQ", "soundfile in a loop"


def claims() -> Iterator[Claim]:
    """All claims, in the order of the ops."""
    yield from _neighbourhoods()
    yield from _morphology()
    yield from _histograms()
    yield from _reductions()
    yield from _boxes()
    yield from _pictures()
    yield from _sound()
    for name, (_, dtypes) in debayer.CASES.items():
        for dtype in dtypes.split():
            kind = {"u1": "uint8", "u2": "uint16"}[dtype]
            size = f"{debayer.COUNT} × {debayer.HEIGHT}×{debayer.WIDTH} {kind}"
            yield f"debayer {name} of {kind}", f"debayer {name}, {size}", "opencv", 1.0


def _neighbourhoods() -> Iterator[Claim]:
    for h, w in neighbourhoods.SIZES:
        size = f"{neighbourhoods.COUNT} × {h}×{w}×3 u8"
        for sigma in neighbourhoods.SIGMAS:
            name = f"gaussian_blur σ={sigma:g}"
            yield f"{name} of {h}×{w}", f"{name}, {size}", "oracle", 6.0
            yield f"{name} of {h}×{w}", f"{name}, {size}", "opencv", 1.0
        for n in neighbourhoods.WINDOWS:
            yield f"filter {n}×{n} of {h}×{w}", f"filter {n}×{n}, {size}", "opencv", 1.0


def _morphology() -> Iterator[Claim]:
    for h, w in morphology.SHAPES:
        for n in morphology.SIZES:
            for op in ("dilate", "erode", "median_blur"):
                workload = f"{op} {n}×{n}, {morphology.COUNT} × {h}×{w}×3 u8"
                yield f"{op} {n}×{n} of {h}×{w}", workload, "opencv", 1.0


def _histograms() -> Iterator[Claim]:
    for h, w in histograms.SIZES:
        size = f"{histograms.COUNT} × {h}×{w}"
        for channels in (3, 1):
            of = f"equalize of {h}×{w}×{channels}"
            for peer in ("opencv", "pillow"):
                yield of, f"equalize, {size}×{channels} u8", peer, 1.0
        for name, channels in (("clahe of lightness", 3), ("clahe of channels", 3), ("clahe", 1)):
            of = f"{name}, {h}×{w}×{channels}"
            yield of, f"{name}, {size}×{channels} u8", "opencv", 1.0


def _reductions() -> Iterator[Claim]:
    for size in reductions.SIZES:
        shape = "×".join(map(str, (reductions.COUNT, *size)))
        for name in reductions.REDUCTIONS:
            yield f"{name} of {shape}", f"{name}, {shape} u8", "oracle", 5.0
            if not name.endswith("HW"):
                yield f"{name} of {shape}", f"{name}, {shape} u8", READ, 1 / 1.5
        for name in reductions.NORMALIZATIONS:
            if name.startswith("normalize"):
                yield f"{name} of {shape}", f"{name}, {shape} u8", "oracle", 5.0


def _boxes() -> Iterator[Claim]:
    of_boxes, of_maps = f"{boxes.COUNT} × {boxes.BOXES} boxes", f"{boxes.MAPS} × {boxes.SIDE}²"
    yield f"random_bbox_crop of {of_boxes}", f"random_bbox_crop, {of_boxes}", "oracle", 3.0
    name = "segmentation.random_object_bbox"
    yield f"random_object_bbox of {of_maps}", f"{name}, {of_maps}", "oracle", 3.0


def _pictures() -> Iterator[Claim]:
    for threads in (1, 2):
        workload = f"JPEG round trip, {resample.COUNT} × 375×500×3 u8, {threads} thread(s)"
        for peer in ("oracle", "opencv"):
            yield f"jpeg_compression_distortion, {threads} thread(s),", workload, peer, 1.0
    for rule in codecs.RULES:
        yield f"crop beyond a {rule} border", f"crop beyond a {rule} border", "oracle", 1.0


def _sound() -> Iterator[Claim]:
    name = "features of speech (spectrogram, mel, decibels)"
    yield name, "spectrogram, mel, decibels", "oracle", 3.0
    yield name, "spectrogram, mel, decibels", TORCH, 2.0
    name = "audio_resample 44.1 → 16 kHz"
    yield name, name, "oracle", 2.0
    yield name, name, SOXR, 1.0
    for kind in ("WAV", "FLAC"):
        for peer in ("oracle", SOUNDFILE):
            yield f"decoders.audio of {kind}", f"decoders.audio of {kind}", peer, 1.0
