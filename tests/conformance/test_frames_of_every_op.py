"""Every op of pictures takes sequences: each frame is what the op makes of it alone, also with arguments per frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.core.schema import OPS, OpDef
from tests.helpers import arrays, samples

SHAPES = [(3, 9, 12, 3), (1, 8, 6, 3), (2, 12, 7, 3)]
VIDEOS = samples(SHAPES, np.uint8, seed=4)
FAMILIES = ("pointwise", "geometry", "resample", "filters", "histograms")
# Ops of these families whose elements are no pictures, or that take them without a look at them.
OTHERS = {
    "cast",
    "cast_like",
    "copy",
    "coord_flip",
    "coord_transform",
    "lookup_table",
    "one_hot",
    "slice",
    "pad",
    "transpose",
}

Draw = Callable[[np.random.Generator, int], Any]  # a value for each of n frames


def number(low: float, high: float) -> Draw:
    return lambda rng, n: rng.uniform(low, high, n).astype(np.float32)


def many(low: float, high: float, *shape: int) -> Draw:
    return lambda rng, n: rng.uniform(low, high, (n, *shape)).astype(np.float32)


def whole(low: int, high: int, *shape: int, odd: bool = False) -> Draw:
    return lambda rng, n: (rng.integers(low, high, (n, *shape)) * (1 + odd) + odd).astype(np.int32)


def matrices(rows: int) -> Draw:
    return lambda rng, n: np.stack(
        [np.eye(rows, 3) + rng.uniform(-0.01, 0.01, (rows, 3)) for _ in range(n)]
    ).astype(np.float32)


RGB = dict(image_type=ndd.types.RGB, output_type=ndd.types.YCbCr)
# Op → arguments that hold for all frames, and those that may differ from frame to frame.
CALLS: dict[str, tuple[dict[str, Any], dict[str, Draw]]] = {
    "brightness": ({}, {"brightness": number(0.5, 2), "brightness_shift": number(-0.2, 0.2)}),
    "brightness_contrast": ({}, {
        "brightness": number(0.5, 2), "brightness_shift": number(-0.2, 0.2), "contrast": number(0.5, 2),
        "contrast_center": number(90, 150)}),
    "contrast": ({}, {"contrast": number(0.5, 2), "contrast_center": number(90, 150)}),
    "hue": ({}, {"hue": number(-90, 90)}),
    "saturation": ({}, {"saturation": number(0, 2)}),
    "hsv": ({}, {"hue": number(-90, 90), "saturation": number(0, 2), "value": number(0.5, 1.5)}),
    "color_twist": ({}, {
        "brightness": number(0.5, 2), "contrast": number(0.5, 2), "hue": number(-90, 90),
        "saturation": number(0, 2)}),
    "color_space_conversion": (RGB, {}),
    "grid_mask": (dict(tile=5, ratio=0.4, angle=0.3, shift_x=2.0), {}),
    "crop": (dict(crop=[5, 4], crop_pos_x=0.3), {}),
    "crop_mirror_normalize": (dict(crop=[5, 4], mirror=1, mean=[1, 2, 3], std=[4, 5, 6]), {}),
    "erase": (dict(anchor=[1, 2], shape=[3, 4], axis_names="HW", fill_value=7), {}),
    "flip": (dict(horizontal=1, vertical=1), {}),
    "paste": (dict(ratio=1.5, fill_value=[7, 200, 30], paste_x=0.2), {}),
    "resize": (dict(size=[6, 7]), {}),
    "experimental.resize": (dict(size=[6, 7]), {}),
    "resize_crop_mirror": (dict(size=[8, 9], crop=[5, 4], mirror=1), {}),
    "tensor_resize": (dict(sizes=[6, 7], axis_names="HW"), {}),
    "rotate": (dict(keep_size=True, fill_value=3), {"angle": number(-180, 180)}),
    "warp_affine": (dict(fill_value=3), {"matrix": matrices(2)}),
    "experimental.warp_perspective": (dict(fill_value=3), {"matrix": matrices(3)}),
    "water": ({}, {}), "sphere": ({}, {}),
    "gaussian_blur": ({}, {"sigma": number(0.3, 2), "window_size": whole(1, 4, odd=True)}),
    "laplacian": ({}, {"smoothing_size": whole(0, 3, odd=True), "window_size": whole(1, 4, odd=True),
                       "scale": number(0.1, 1)}),
    "experimental.median_blur": (dict(window_size=3), {}),
    "experimental.dilate": ({}, {"mask_size": whole(1, 5, 2), "anchor": whole(0, 1, 2)}),
    "experimental.erode": ({}, {"mask_size": whole(1, 5, 2), "anchor": whole(0, 1, 2)}),
    "clahe": ({}, {"tiles_x": whole(1, 4), "tiles_y": whole(1, 4), "clip_limit": number(0.5, 4)}),
    "equalize": ({}, {}),
}  # fmt: skip
# These have further inputs, numbers of their own for each element, or a layout of their own; see `SPECIAL`.
ELSEWHERE = {
    "jitter": "random per frame: test_displacements", "multi_paste": "test_per_frame",
    "debayer": "one channel in, three out", "filter": "a second input",
    "experimental.remap": "maps as inputs",
}  # fmt: skip


# Ops that look for the axes they need in any layout; others without a list of layouts take pictures as HWC.
ANY_LAYOUT = {"erase", "tensor_resize", "gaussian_blur", "laplacian"}


def op_of(name: str) -> Callable[..., Any]:
    found: Any = ndd
    for part in name.split("."):
        found = getattr(found, part)
    return found


def family(op: OpDef) -> str:
    return op.body.__module__.split(".")[2]


def test_no_op_is_left_out() -> None:
    wanted = {
        n
        for n, op in OPS.items()
        if op.body.__module__.startswith("ndd.ops.") and family(op) in FAMILIES
    }
    assert wanted - OTHERS == {*CALLS, *ELSEWHERE}
    for name, (_, differing) in CALLS.items():
        per_frame = {p.name for p in OPS[name].params if p.per_frame and not p.positional}
        assert per_frame - {"axis"} == {*differing}, name  # only volumes have an axis


def moved(video: np.ndarray, layout: str, source: str = "FHWC") -> np.ndarray:
    return np.ascontiguousarray(video.transpose([source.index(a) for a in layout]))


def alone(
    name: str, video: np.ndarray, layout: str, given: dict[str, Any], result: str
) -> np.ndarray:
    """The results of all frames, each by a call of its own."""
    at, made = layout.index("F"), []
    for f in range(video.shape[at]):
        frame = ndd.tensor(np.ascontiguousarray(video.take(f, at)), layout=layout.replace("F", ""))
        own = {k: v[f] if isinstance(v, np.ndarray) else v for k, v in given.items()}
        made.append(np.asarray(op_of(name)(frame, **own)))
    return np.stack(made, result.index("F"))


CASES = [
    (name, layout) for name in CALLS for layout in ("FHWC", "FCHW", "CFHW")
    if layout in (OPS[name].layouts or ("FHWC", *(("FCHW", "CFHW") if name in ANY_LAYOUT else ())))
]  # fmt: skip


@pytest.mark.parametrize(("name", "layout"), CASES)
def test_frames(name: str, layout: str) -> None:
    """All arguments differ from frame to frame, and from sample to sample; then each by itself."""
    same, differing = CALLS[name]
    rng = np.random.default_rng(6)
    videos = [moved(v, layout) for v in VIDEOS]
    drawn = {k: [draw(rng, s[0]) for s in SHAPES] for k, draw in differing.items()}
    chosen = [drawn, *({k: v} for k, v in drawn.items() if len(drawn) > 1 and name != "clahe")]
    for numbers in chosen:
        if name.startswith("experimental.") and "mask_size" not in numbers and "anchor" in numbers:
            continue  # an anchor must lie in its window
        given = {k: ndd.per_frame(ndd.batch(v)) for k, v in numbers.items()}
        result = op_of(name)(ndd.batch(videos, layout=layout), **same, **given)
        got = arrays(result)
        for s, video in enumerate(videos):
            own = {**same, **{k: v[s] for k, v in numbers.items()}}
            np.testing.assert_array_equal(got[s], alone(name, video, layout, own, result.layout))


@pytest.mark.parametrize("layout", ["FHWC", "FCHW"])
def test_filter(layout: str) -> None:
    kernels = [
        np.random.default_rng(s).uniform(-0.2, 0.3, (n[0], 3, 4)).astype(np.float32)
        for s, n in enumerate(SHAPES)
    ]
    videos = [moved(v, layout) for v in VIDEOS]
    got = arrays(ndd.filter(ndd.batch(videos, layout=layout), ndd.per_frame(ndd.batch(kernels))))
    for video, kernel, found in zip(videos, kernels, got, strict=True):
        for f, frame in enumerate(video):
            want = ndd.filter(ndd.tensor(frame, layout=layout[1:]), kernel[f])
            np.testing.assert_array_equal(found[f], np.asarray(want))


@pytest.mark.parametrize("name", ["debayer", "experimental.remap"])
def test_inputs_of_their_own(name: str) -> None:
    rng = np.random.default_rng(8)
    videos = [v[:, : v.shape[1] // 2 * 2, : v.shape[2] // 2 * 2, 0].copy() for v in VIDEOS]
    places = [rng.integers(0, 2, (len(v), 2)).astype(np.int32) for v in videos]
    maps = [[rng.uniform(0, 5, v.shape).astype(np.float32) for v in videos] for _ in range(2)]
    if name == "debayer":
        x = ndd.batch(videos, layout="FHW")
        got = arrays(ndd.debayer(x, blue_position=ndd.per_frame(ndd.batch(places))))
    else:
        beside = [ndd.batch(m, layout="FHW") for m in maps]
        got = arrays(ndd.experimental.remap(ndd.batch(VIDEOS, layout="FHWC"), *beside))
    for s, found in enumerate(got):
        for f, frame in enumerate(found):
            if name == "debayer":
                one = ndd.debayer(ndd.tensor(videos[s][f], layout="HW"), blue_position=places[s][f])
            else:
                own = [ndd.tensor(m[s][f], layout="HW") for m in maps]
                one = ndd.experimental.remap(ndd.tensor(VIDEOS[s][f], layout="HWC"), *own)
            np.testing.assert_array_equal(frame, np.asarray(one))
