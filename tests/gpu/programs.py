"""Small programs that together use every op: run on the CPU and on the (simulated) GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import ndd
from ndd.fusion.plan.planner import PLANNER
from ndd.fusion.plan.program import collect
from ndd.fusion.plan.steps import KernelStep
from ndd.kernels.gpu.marks import marks_of
from ndd.kernels.ir.spec import KernelSpec
from ndd.kernels.ir.tap_table import TAP_TABLE

Program = Callable[[Any], Any]
_rng = np.random.default_rng(7)
IMAGES = [_rng.integers(0, 256, (h, w, 3), dtype=np.uint8) for h, w in ((5, 7), (4, 9), (1, 1))]
TALL = [_rng.integers(0, 256, (h, w, 3), dtype=np.uint8) for h, w in ((40, 7), (1, 70), (2, 3))]
WIDE = [_rng.integers(0, 256, (h, w, 3), dtype=np.uint8) for h, w in ((2, 530), (3, 20), (1, 257))]
FLOATS = [_rng.normal(0, 2, (h, w)).astype(np.float32) for h, w in ((3, 5), (2, 8), (1, 1))]
POINTS = [_rng.normal(0, 1, (n, 2)).astype(np.float32) for n in (3, 5, 1)]
WORDS = [_rng.integers(-1000, 1000, (n, 4)).astype(np.int32) for n in (3, 5, 1)]
VOLUMES = [_rng.integers(0, 256, (d, 5, 4, 2), dtype=np.uint8) for d in (4, 3, 1)]
BOXES = [_rng.uniform(0, 0.5, (n, 4)).astype(np.float32) for n in (3, 5, 1)]
MAPS = [_rng.uniform(0, 5, (6, 7)).astype(np.float32) for _ in range(2)]
LONG = [_rng.normal(1, 2, (h, w)).astype(np.float32) for h, w in ((71, 90), (3, 2100), (1, 1))]
RAW = [_rng.integers(0, 256, shape, dtype=np.uint8) for shape in ((8, 10), (12, 8), (2, 4))]
SIGNALS = [_rng.normal(0, 0.3, n).astype(np.float32) for n in (300, 40, 1)]
PER_SAMPLE = [0.5, 1.5, -0.25]
# What hardware and interpreter are most likely to treat differently.
SPECIAL = [
    np.float32([[0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1.4e-45],
                [0.5, -0.5, 1.5, 2.5, 3.4e38, -3.4e38, 2.0**31, -(2.0**63)]]),
    np.float32([[65504.0, 65520.0, 6e-8, 2.9e-8, 1e-45, 255.5, 254.5, -1.0]]),
    np.float32([[np.nan]]),
]  # fmt: skip
DOUBLES = [x.astype(np.float64) * 1.1 for x in FLOATS]
LONGS = [_rng.integers(-(2**62), 2**62, (n, 4)) for n in (3, 5, 1)]
SHORTS = [_rng.integers(0, 65536, (h, w, 3), dtype=np.uint16) for h, w in ((5, 7), (4, 9), (1, 1))]
CORNERS = [np.concatenate([x[:, :2], x[:, :2] + x[:, 2:] + 0.1], axis=1) for x in BOXES]
SQUARES = [_rng.integers(0, 256, (n, n, 3), dtype=np.uint8) for n in (5, 8, 1)]


def _per_sample() -> Any:
    return ndd.batch([np.float32(v) for v in PER_SAMPLE])


KERNEL = _rng.normal(0, 0.3, (3, 4)).astype(np.float32)


def _sigmas() -> Any:
    return ndd.batch([np.float32(v) for v in (0.5, 1.0, 3.0)])


def _masks() -> Any:
    return ndd.batch([np.int32(v) for v in ([3, 3], [2, 5], [9, 1])])


def _windows() -> Any:
    return ndd.batch([np.int32(v) for v in ([3, 3], [5, 5], [3, 1])])


def images(program: Program) -> tuple[list[Any], str | None, Program]:
    return IMAGES, "HWC", program


def floats(program: Program) -> tuple[list[Any], str | None, Program]:
    return FLOATS, None, program


# name → (samples, layout, program)
PROGRAMS: dict[str, tuple[list[Any], str | None, Program]] = {
    "brightness": images(lambda x: ndd.brightness(x, brightness=_per_sample(), brightness_shift=0.1)),
    "contrast": images(lambda x: ndd.contrast(x, contrast=_per_sample(), dtype=ndd.float16)),
    "brightness_contrast": images(lambda x: ndd.brightness_contrast(x, brightness=1.5, contrast=0.7)),
    "hsv": images(lambda x: ndd.hsv(x, hue=20.0, saturation=1.2, value=0.9)),
    "hue": images(lambda x: ndd.hue(x, hue=_per_sample())),
    "saturation": images(lambda x: ndd.saturation(x, saturation=_per_sample())),
    "color_twist": images(lambda x: ndd.color_twist(x, hue=9.0, contrast=_per_sample())),
    "rgb to ycbcr": images(lambda x: _converted(x, "RGB", "YCbCr")),
    "rgb to gray": images(lambda x: _converted(x, "RGB", "GRAY")),
    "flip": images(lambda x: ndd.flip(x, horizontal=ndd.batch([1, 0, 1]), vertical=1)),
    "crop pad": images(lambda x: ndd.crop(x, crop=[6, 6], out_of_bounds_policy="pad",
                                          fill_values=[1, 2, 3])),
    **{f"crop {border}": images(lambda x, border=border: ndd.crop(
        ndd.brightness(x, brightness=1.5), crop=[11, 12], out_of_bounds_policy=border) + 1)
       for border in ("clamp", "reflect_101", "reflect_1001", "wrap")},
    "sequence_rearrange": (VOLUMES, "FHWC", lambda x: ndd.sequence_rearrange(
        ndd.flip(x), new_order=ndd.batch([[3, 0, 0], [1], [0, 0]]))),
    "brightness frames": (VOLUMES, "FHWC", lambda x: ndd.brightness(x, brightness=ndd.per_frame(
        ndd.batch([np.float32([0.5, 1.0, 1.5, 2.0])[:n] for n in (4, 3, 1)])))),
    "slice": images(lambda x: ndd.slice(x, start=[0, 0], end=[1, 1])),
    "slice of different axes": images(lambda x: ndd.slice(
        x, axes=ndd.batch([[0], [0, 1], [1]]), start=ndd.batch([[1], [1, 1], [1]]))),
    "index": images(lambda x: x.slice[::-1, 0]),
    "pad": images(lambda x: ndd.pad(x, align=[4, 4, 1], fill_value=7)),
    "gaussian_blur": images(lambda x: ndd.gaussian_blur(x, sigma=_sigmas())),
    "gaussian_blur volume": (VOLUMES, "DHWC", lambda x: ndd.gaussian_blur(x, sigma=[0.5, 1.0, 2.0])),
    "gaussian_blur plane": floats(lambda x: ndd.gaussian_blur(x, window_size=[3, 5])),
    "gaussian_blur tiles": (TALL, "HWC", lambda x: ndd.gaussian_blur(
        x, sigma=ndd.batch([np.float32(v) for v in (0.5, 1.0, 2.6)]))),
    "tiles of halves": ([x.astype(np.float16) for x in TALL], "HWC", lambda x: ndd.color_twist(
        ndd.gaussian_blur(x, sigma=1.0), hue=9.0)),
    "tiles in a chain": (TALL, "HWC", lambda x: ndd.crop_mirror_normalize(
        ndd.color_twist(ndd.gaussian_blur(x, sigma=1.0), hue=_per_sample()),
        mirror=ndd.batch([1, 0, 1]), mean=[1.0, 2.0, 3.0], std=[2.0, 3.0, 4.0])),
    "blur in a chain": images(lambda x: ndd.crop_mirror_normalize(
        ndd.gaussian_blur(ndd.brightness(x, brightness=1.5), sigma=_sigmas()),
        mirror=ndd.batch([1, 0, 1]), mean=[1.0, 2.0, 3.0], std=[2.0, 3.0, 4.0])),
    "laplacian": images(lambda x: ndd.laplacian(x, window_size=5, smoothing_size=3, dtype=ndd.float32)),
    "laplacian volume": (VOLUMES, "DHWC", lambda x: ndd.laplacian(x, normalized_kernel=True)),
    **{f"filter {border}": images(lambda x, border=border: ndd.filter(x, KERNEL, border=border))
       for border in ("reflect_101", "reflect_1001", "clamp", "wrap", "constant")},
    "filter fill": images(lambda x: ndd.filter(x, KERNEL, 7, border="constant", anchor=[1, 0])),
    "filter volume": (VOLUMES, "DHWC", lambda x: ndd.filter(x, KERNEL[None], border="wrap")),
    "filter valid": images(lambda x: ndd.filter(x, KERNEL[:1, :1], mode="valid", dtype=ndd.float32)),
    "spectrogram": (SIGNALS, None, lambda x: ndd.spectrogram(x * 2.0, window_length=16, window_step=5, power=1)),
    "spectrogram tf": (SIGNALS, None, lambda x: ndd.spectrogram(
        x, window_length=9, window_step=5, layout="tf", reflect_padding=False) + 1.0),
    "mel_filter_bank": floats(lambda x: ndd.mel_filter_bank(ndd.pad(x, shape=[17, 5]), nfilter=4) * 2.0),
    "mfcc": floats(lambda x: ndd.mfcc(x, axis=1, n_mfcc=3)),
    "to_decibels": floats(lambda x: ndd.to_decibels(x * x)),
    "preemphasis_filter": (SIGNALS, None, lambda x: ndd.preemphasis_filter(x, preemph_coeff=_per_sample())),
    "audio_resample": (SIGNALS, None, lambda x: ndd.audio_resample(x, scale=1.7, dtype=ndd.int16)),
    "power_spectrum": floats(lambda x: ndd.power_spectrum(x, axis=0)),
    "equalize": images(lambda x: ndd.equalize(x)),
    "equalize planes": images(lambda x: ndd.equalize(ndd.transpose(x, perm=[2, 0, 1])) + 1),
    "equalize sequence": (VOLUMES, "FHWC", lambda x: ndd.equalize(x)),
    "equalize large": images(lambda x: ndd.equalize(ndd.resize(x, size=[190, 180]))),
    "clahe": images(lambda x: ndd.clahe(x, tiles_x=ndd.batch([1, 2, 3]), tiles_y=2, clip_limit=2.0)),
    "clahe channels": images(lambda x: ndd.flip(
        ndd.clahe(x, tiles_x=2, tiles_y=1, clip_limit=_sigmas(), luma_only=False))),
    "clahe grey": images(lambda x: ndd.clahe(_converted(x, "RGB", "GRAY"), tiles_x=2, tiles_y=2,
                                             clip_limit=0.0)),
    **{f"dilate {border}": images(lambda x, border=border: ndd.experimental.dilate(
        x, mask_size=_masks(), anchor=[0, -1], border_mode=border))
       for border in ("constant", "reflect", "reflect_101", "wrap")},
    "erode plane": floats(lambda x: ndd.experimental.erode(x, iterations=ndd.batch([1, 0, 3]))),
    "dilate frames": (VOLUMES, "FHWC", lambda x: ndd.experimental.dilate(
        x, mask_size=ndd.batch([np.arange(1, 2 * n + 1).reshape(n, 2) for n in (4, 3, 1)]))),
    "median_blur": images(lambda x: ndd.experimental.median_blur(x, window_size=_windows())),
    "median_blur plane": floats(lambda x: ndd.experimental.median_blur(x, window_size=_windows())),
    "median_blur words": (WORDS, None, lambda x: ndd.experimental.median_blur(x, window_size=[3, 1])),
    "median in a chain": images(lambda x: ndd.crop_mirror_normalize(
        ndd.experimental.median_blur(ndd.brightness(x, brightness=1.5)),
        mirror=ndd.batch([1, 0, 1]), mean=[1.0, 2.0, 3.0], std=[2.0, 3.0, 4.0])),
    "erode in a chain": images(lambda x: ndd.crop_mirror_normalize(
        ndd.experimental.erode(ndd.brightness(x, brightness=1.5), mask_size=_masks()),
        mirror=ndd.batch([1, 0, 1]), mean=[1.0, 2.0, 3.0], std=[2.0, 3.0, 4.0])),
    **{f"debayer {name}": (RAW, "HW", lambda x, name=name: ndd.debayer(
        x, blue_position=ndd.batch([[0, 1], [1, 1], [0, 0]]), algorithm=name))
       for name in ("bilinear_ocv", "edgeaware_ocv", "vng_ocv", "gray_ocv", "default_npp")},
    "transpose": images(lambda x: ndd.transpose(x, perm=[2, 0, 1])),
    "cat": images(lambda x: ndd.cat(x, ndd.flip(x), x, axis=1)),
    "stack": images(lambda x: ndd.stack(x, x, axis=0)),
    "erase": images(lambda x: ndd.erase(x, anchor=[0, 0, 1, 1], shape=[1, 1, 2, 2],
                                        fill_value=[9, 8, 7])),
    "grid_mask": images(lambda x: ndd.grid_mask(x, tile=4, ratio=0.4)),
    "crop_mirror_normalize": images(lambda x: ndd.crop_mirror_normalize(
        x, crop=[1, 1], mirror=ndd.batch([1, 0, 1]), mean=[1.0, 2.0, 3.0], std=[2.0, 3.0, 4.0])),
    "lookup_table": images(lambda x: ndd.lookup_table(x, keys=[1, 5, 9], values=[2.0, 3.0, 4.0])),
    "reshape": images(lambda x: ndd.reshape(x, shape=[-1])),
    "reinterpret": floats(lambda x: ndd.reinterpret(x, dtype=ndd.uint8)),
    "squeeze": images(lambda x: ndd.squeeze(ndd.expand_dims(x, axes=[0]), axes=[0]) + 1),
    "copy": images(lambda x: ndd.copy(x)),
    "zeros_like": images(lambda x: ndd.zeros_like(x) + x),
    "full_like": images(lambda x: ndd.full_like(x, 7)),
    "one_hot": (WORDS, None, lambda x: ndd.one_hot(x, num_classes=5)),
    "coord_flip": (POINTS, None, lambda x: ndd.coord_flip(x, flip_x=1, flip_y=ndd.batch([1, 0, 1]))),
    "coord_transform": (POINTS, None, lambda x: ndd.coord_transform(
        x, M=[[1.0, 2.0], [3.0, 4.0]], T=[0.5, 0.25])),
    "permute_batch": images(lambda x: ndd.permute_batch(x, indices=[2, 0, 1])),
    "select": images(lambda x: x.select([2, 0])),
    "cast f16": floats(lambda x: ndd.cast(x, dtype=ndd.float16)),
    "cast bf16": floats(lambda x: ndd.cast(ndd.cast(x, dtype=ndd.bfloat16), dtype=ndd.float32)),
    "cast u8": floats(lambda x: ndd.cast(x * 100, dtype=ndd.uint8)),
    "operators": (WORDS, None, lambda x: ((x + 3) * x - (x >> 2)) ^ (x & 15) | ~x),
    "division": (WORDS, None, lambda x: x // 7 + x % 5 + (x * 1000000007) // (x | 1)),
    "power": (WORDS, None, lambda x: x**3),
    "comparison": floats(lambda x: (x > 0) & (x <= 1.5) | (x == 0.0)),
    "broadcast": floats(lambda x: x * _per_sample() + ndd.tensor([2.0])),
    "exp and log": floats(lambda x: ndd.math.log(ndd.math.exp(x) + 1.0)),
    "trigonometry": floats(lambda x: ndd.math.sin(x) + ndd.math.cos(x) * ndd.math.atan2(x, 2.0)),
    "roots": floats(lambda x: ndd.math.sqrt(ndd.math.abs(x)) + ndd.math.cbrt(x)),
    "gamma": floats(lambda x: ndd.math.clamp(x, 0.0, 1.0) ** 0.45),
    "fmod": floats(lambda x: x % 0.7),
    "long chain": images(lambda x: ndd.crop_mirror_normalize(
        ndd.flip(ndd.brightness_contrast(ndd.color_twist(x, hue=_per_sample()), contrast=1.2)),
        crop=[1, 1], mean=[1.0], std=[2.0], dtype=ndd.float16)),
    "resize normalise": images(lambda x: ndd.crop_mirror_normalize(
        ndd.flip(ndd.crop(ndd.resize(x, size=[9, 8]), crop=[6, 5])),
        mean=[1.0, 2.0, 3.0], std=[2.0, 3.0, 4.0])),
    "resize cubic": images(lambda x: ndd.resize(
        x, size=[3, 11], interp_type=ndd.types.INTERP_CUBIC, dtype=ndd.float32)),
    "resize nearest": images(lambda x: ndd.resize(x, size=[7, 5], interp_type=ndd.types.INTERP_NN)),
    "resize planes": images(lambda x: ndd.resize(ndd.transpose(x, perm=[2, 0, 1]), size=[4, 4])),
    "resize volume": (VOLUMES, "DHWC", lambda x: ndd.resize(x, size=[3, 5, 6])),
    "resize_crop_mirror": images(lambda x: ndd.resize_crop_mirror(
        x, resize_shorter=8, crop=[5, 5], mirror=ndd.batch([1, 0, 1]))),
    "tensor_resize": floats(lambda x: ndd.tensor_resize(x, sizes=[4, 7], axes=[0, 1])),
    "experimental.resize": images(lambda x: ndd.experimental.resize(x, resize_x=5, roi_start=[0, 0],
                                                                    roi_end=[1, 1])),
    "rotate": images(lambda x: ndd.rotate(x, angle=_per_sample() * 70.0, fill_value=3.0)),
    "rotate wide": (WIDE, "HWC", lambda x: ndd.rotate(x, angle=_per_sample() * 50.0)),
    "rotate volume": (VOLUMES, "DHWC", lambda x: ndd.rotate(x, angle=30.0, axis=[1.0, 0.5, 0.2])),
    "warp_affine": images(lambda x: ndd.brightness(ndd.warp_affine(
        ndd.cast(x, dtype=ndd.float32), matrix=[0.9, 0.3, -1.0, -0.3, 0.8, 1.5]), brightness=0.5)),
    "warp_affine nearest": images(lambda x: ndd.warp_affine(
        x, matrix=[0.9, 0.3, -1.0, -0.3, 0.8, 1.5], interp_type=ndd.types.INTERP_NN)),
    "warp_perspective": images(lambda x: ndd.experimental.warp_perspective(
        x, matrix=[0.9, 0.1, 0.2, 0.1, 0.8, 0.3, 0.01, 0.02, 1.0], border_mode="reflect_101")),
    "remap": images(lambda x: ndd.experimental.remap(x, *MAPS)),
    "water": images(lambda x: ndd.water(x, ampl_x=2.0, ampl_y=1.5, freq_x=0.5, freq_y=0.3)),
    "sphere": images(lambda x: ndd.sphere(x, interp_type=ndd.types.INTERP_LINEAR)),
    "jitter": images(lambda x: ndd.jitter(x, rng=ndd.random.RNG(5))),
    "paste": images(lambda x: ndd.paste(x, ratio=1.5, fill_value=[1, 2, 3])),
    "multi_paste": images(lambda x: ndd.multi_paste(
        x, in_ids=np.int32([0, 1]), output_size=[12, 14], out_anchors=np.int32([[0, 0], [2, 3]]))),
    "bb_flip": (BOXES, None, lambda x: ndd.bb_flip(x, horizontal=1, vertical=ndd.batch([1, 0, 1]))),
    "bbox_paste": (BOXES, None, lambda x: ndd.bbox_paste(x, ratio=2.0)),
    "random_resized_crop": images(lambda x: ndd.random_resized_crop(
        x, size=[6, 6], rng=ndd.random.RNG(11))),
    "transforms": (POINTS, None, lambda x: ndd.coord_transform(x, MT=ndd.transforms.rotation(
        ndd.transforms.scale(scale=[2.0, 3.0]), angle=30.0, center=[1.0, 2.0]))),
    "sum": images(lambda x: ndd.reductions.sum(x)),
    "mean of rows": images(lambda x: ndd.reductions.mean(x, axis_names="W")),
    "mean of channels": images(lambda x: ndd.reductions.mean(x, axis_names="C")),
    "rms of planes": images(lambda x: ndd.reductions.rms(
        ndd.color_twist(x, hue=_per_sample()), axis_names="HW", keep_dims=True)),
    "extremes": floats(lambda x: ndd.reductions.max(x, axes=[0]) - ndd.reductions.min(x, axes=[0])),
    "long sums": (LONG, None, lambda x: ndd.reductions.sum(x * 0.5)),
    "long sums of rows": (LONG, None, lambda x: ndd.reductions.mean_square(x, axes=[1])),
    "long sums of columns": (LONG, None, lambda x: ndd.reductions.mean(x, axes=[0])),
    "deviations": (LONG, None, lambda x: ndd.reductions.std_dev(
        x, ndd.reductions.mean(x, axes=[1]), axes=[1], ddof=1)),
    "variance of bytes": images(lambda x: ndd.reductions.variance(
        x, ndd.reductions.mean(x, axis_names="HW"), axis_names="HW")),
    "subtract the mean": images(lambda x: x - ndd.reductions.mean(x, axis_names="HW")),
    "normalize": images(lambda x: ndd.normalize(x, axis_names="HW", epsilon=_per_sample() + 1.0)),
    "normalize a batch": (VOLUMES, "DHWC", lambda x: ndd.normalize(
        x, axis_names="DHW", batch=True, scale=20.0, shift=128.0, dtype=ndd.uint8)),
    "auto_augment.rand_augment": images(lambda x: ndd.auto_augment.rand_augment(
        x, n=2, m=20, rng=ndd.random.RNG(1))),
    "auto_augment.trivial_augment": images(lambda x: ndd.auto_augment.trivial_augment(
        x, shape=[4, 8], rng=ndd.random.RNG(2))),
    "auto_augment.auto_augment": images(lambda x: ndd.auto_augment.auto_augment(
        x, "reduced_cifar10", fill_value=None, rng=ndd.random.RNG(3))),
    "noise.gaussian": images(lambda x: ndd.crop_mirror_normalize(ndd.brightness(ndd.noise.gaussian(
        x, stddev=_per_sample() * 20.0, rng=ndd.random.RNG(1)), brightness=1.1), std=[50.0])),
    "noise.shot": floats(lambda x: ndd.noise.shot(
        x * 50.0, factor=_per_sample() * 2.0, rng=ndd.random.RNG(2))),
    "noise.salt_and_pepper": images(lambda x: ndd.noise.salt_and_pepper(
        x, prob=0.4, salt_vs_pepper=_per_sample() * 0.2 + 0.3, rng=ndd.random.RNG(4))),
    "noise": floats(lambda x: x + ndd.random.normal(
        shape=[1, 1], batch_size=3, rng=ndd.random.RNG(3), device=x.device)),
    "random numbers": floats(lambda x: x + ndd.random.uniform(
        x, range=[2.0, 5.0], rng=ndd.random.RNG(6)) * ndd.random.coin_flip(
        x, probability=0.3, rng=ndd.random.RNG(7), dtype=ndd.float32)),
    "random choices": floats(lambda x: ndd.random.choice(
        x, shape=[6], p=ndd.batch([np.float32(p) for p in ([0.2, 0.3, 0.5], [0.9, 0.1], [1.0])]),
        rng=ndd.random.RNG(8))),
    "rotate by quarter turns": (SQUARES, "HWC", lambda x: ndd.rotate(
        x, angle=ndd.batch([np.float32(a) for a in (90.0, 180.0, -90.0)]), keep_size=True)),
    "inverse functions": floats(lambda x: ndd.math.asin(x * 0.1) + ndd.math.acos(x * 0.1)
                                * ndd.math.atan(x) + ndd.math.asinh(x)),
    "hyperbolic functions": floats(lambda x: ndd.math.tanh(x) + ndd.math.sinh(x * 0.1)
                                   * ndd.math.cosh(x) + ndd.math.acosh(x * x + 1.5)),
    "logarithms": floats(lambda x: ndd.math.log2(x * x + 0.1) + ndd.math.log10(x * x + 0.2)
                         + ndd.math.atanh(ndd.math.clamp(x, -0.9, 0.9)) + ndd.math.tan(x)),
    "rsqrt": floats(lambda x: ndd.math.rsqrt(x * x + 0.5)),
    "rounding of special numbers": (SPECIAL, None, lambda x: ndd.math.floor(x) - ndd.math.ceil(x)),
    "arithmetic of special numbers": (SPECIAL, None, lambda x: (x * 0.5 + x / 3.0) - abs(-x) * 1e-3),
    "extremes of special numbers": (SPECIAL, None, lambda x: ndd.math.max(
        ndd.math.clamp(x, -2.0, 300.0), ndd.math.min(x, 0.25))),
    "comparison of special numbers": (SPECIAL, None, lambda x: (x < 1.0) & (x != x) | (x >= 0.0)),
    "roots of special numbers": (SPECIAL, None, lambda x: ndd.math.sqrt(ndd.math.abs(x))),
    **{f"special numbers to {name}": (SPECIAL, None, lambda x, name=name: ndd.cast(
        x, dtype=getattr(ndd, name))) for name in ("uint8", "int32", "int64", "float16", "bfloat16")},
    "words of 64 bits": (LONGS, None, lambda x: (x * 3 + (x >> 5)) ^ (x // 1000003) - x % 77),
    "doubles": (DOUBLES, None, lambda x: x * x / 3.0 + ndd.math.abs(x - 0.5)),
    "doubles to bytes": (DOUBLES, None, lambda x: ndd.cast(x * 100, dtype=ndd.uint8)),
    "halves": ([x.astype(np.float16) for x in FLOATS], None, lambda x: (x * x + x) / 3 - ndd.math.abs(x)),
    "shorts": (SHORTS, "HWC", lambda x: ndd.brightness_contrast(x, brightness=1.5, contrast=0.7)),
    "flip of shorts": (SHORTS, "HWC", lambda x: ndd.flip(x) | 1),
    "resize of shorts": (SHORTS, "HWC", lambda x: ndd.resize(x, size=[4, 6])),
    "box_encoder": (CORNERS, None, lambda x: _encoded(x)),
    "box_encoder offsets": (CORNERS, None, lambda x: _encoded(x, offset=True)),
    "cast_like": floats(lambda x: ndd.cast_like(x * 9, ndd.zeros(shape=[1], dtype=ndd.int16))),
    "ones_like": floats(lambda x: ndd.ones_like(x) - x),
    "element_extract": (VOLUMES, "FHWC", lambda x: ndd.element_extract(x, element_map=[0]) + 1),
}  # fmt: skip

# Bit-equal on both devices except where a transcendental function may differ in the last places.
INEXACT = {
    "exp and log", "trigonometry", "gamma", "roots", "transforms", "inverse functions",
    "hyperbolic functions", "logarithms",
}  # fmt: skip
# Fourier transforms are summed in another order on a GPU.
REORDERED = {"spectrogram", "spectrogram tf", "power_spectrum"}


def _converted(x: Any, source: str, target: str) -> Any:
    types = ndd.types
    return ndd.color_space_conversion(
        x, image_type=types.DALIImageType[source], output_type=types.DALIImageType[target]
    )


def _encoded(x: Any, **arguments: Any) -> Any:
    labels = ndd.batch([np.arange(1, len(boxes) + 1, dtype=np.int32) for boxes in CORNERS])
    anchors = [0.0, 0.0, 0.5, 0.5, 0.2, 0.1, 0.7, 0.9, 0.4, 0.4, 0.45, 0.5]
    return ndd.box_encoder(
        x, labels.to_device(x.device), anchors=anchors, criteria=0.3, **arguments
    )[0]


def all_kernels() -> list[KernelSpec]:
    """The kernels of all programs, from their plans, and those that fill tables for them; nothing
    runs."""
    planned = dict.fromkeys(spec for name in PROGRAMS for spec in planned_kernels(name))
    marks = dict.fromkeys(found.spec for spec in planned if (found := marks_of(spec)) is not None)
    return [*planned, TAP_TABLE, *marks]


def planned_kernels(name: str) -> list[KernelSpec]:
    """The GPU kernels of one program, from its plan."""
    samples, layout, program = PROGRAMS[name]
    with ndd.EvalMode.deferred:
        out = program(ndd.batch(samples, layout=layout, device="gpu"))
        plan, _ = PLANNER.plan_for(collect([out._node]), True)
    return [s.spec for s in plan.steps if isinstance(s, KernelStep) and s.device is not None]
