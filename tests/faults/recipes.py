"""Sound calls of ops that random arguments hardly ever suit: inputs and arguments that belong together.

A recipe draws what is baked into a kernel (types, layouts, choices). Shapes and run-time arguments are functions,
which are drawn again for every call, or for every sample. Without recipes, many ops only ever refuse.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import ndd
from ndd.types import DALIImageType as Image
from ndd.types import DALIInterpType as Interp

Shape = tuple[int, ...]
Draw = Callable[[random.Random], Any]


@dataclass
class Input:
    """An input: the shape is drawn for each sample, from the shapes of the inputs before it."""

    dtype: str
    shape: Callable[[random.Random, list[Shape]], Shape]
    layout: str | None = None
    values: Callable[[Shape, np.random.Generator], Any] | None = None


@dataclass
class Recipe:
    """Inputs and arguments; arguments that are functions are drawn for every call."""

    inputs: list[Input]
    options: dict[str, Any] = field(default_factory=dict)
    is_batch: bool = True
    same_for_all: tuple[str, ...] = ()  # arguments that all samples share


Maker = Callable[[random.Random], Recipe]
RECIPES: dict[str, Maker] = {}


def recipe(*names: str) -> Callable[[Maker], Maker]:
    """Registers a recipe for some ops."""

    def register(make: Maker) -> Maker:
        for name in names:
            RECIPES[name] = make
        return make

    return register


# -- parts -----------------------------------------------------------------------------------------


def sized(*extents: Any) -> Callable[[random.Random, list[Shape]], Shape]:
    """A shape; an extent that is a pair is drawn from this range."""
    return lambda r, others: tuple(r.randint(*e) if isinstance(e, tuple) else e for e in extents)


def like_first(r: random.Random, others: list[Shape]) -> Shape:
    return others[0]


def boxes_in(dims: int, ltrb: bool) -> Callable[[Shape, np.random.Generator], Any]:
    """Boxes inside of a picture of size 1."""

    def made(shape: Shape, noise: np.random.Generator) -> Any:
        low = noise.random((shape[0], dims)) * 0.5
        extent = noise.random((shape[0], dims)) * 0.5
        rest = low + extent if ltrb else extent
        return np.concatenate([low, rest], 1).astype(np.float32)

    return made


def whole(low: int, high: int, count: int = 0) -> Draw:
    if not count:
        return lambda r: r.randint(low, high)
    return lambda r: [r.randint(low, high) for _ in range(count)]


def real(low: float, high: float, count: int = 0) -> Draw:
    if not count:
        return lambda r: r.uniform(low, high)
    return lambda r: [r.uniform(low, high) for _ in range(count)]


def picture(r: random.Random, *types: str, layout: str = "HWC", channels: int = 3) -> Input:
    extents = {"C": channels, "F": (1, 3)}
    shape = sized(*(extents.get(c, (1, 13)) for c in layout))
    return Input(r.choice(types or ("uint8", "float32", "int16")), shape, layout)


def some(r: random.Random, **options: Any) -> dict[str, Any]:
    """About half of these arguments."""
    return {name: value for name, value in options.items() if r.random() < 0.5}


def turned(r: random.Random) -> str:
    return r.choice(("HWC", "HWC", "CHW", "FHWC"))


def smooth(r: random.Random) -> Interp:
    return r.choice((Interp.INTERP_NN, Interp.INTERP_LINEAR, Interp.INTERP_CUBIC))


# -- pictures --------------------------------------------------------------------------------------


@recipe("crop")
def _crop(r: random.Random) -> Recipe:
    policy = r.choice(("pad", "pad", "trim_to_shape", "error"))
    size = r.choice(({"crop": whole(1, 9, 2)}, {"crop_h": whole(1, 9), "crop_w": whole(1, 9)}))
    place = some(
        r, crop_pos_x=real(0, 1), crop_pos_y=real(0, 1), dtype=r.choice((ndd.float32, ndd.uint8))
    )
    return Recipe([picture(r, layout=turned(r))], {**size, **place, "out_of_bounds_policy": policy})


@recipe("crop_mirror_normalize")
def _crop_mirror_normalize(r: random.Random) -> Recipe:
    options = some(
        r, crop_pos_x=real(0, 1), mirror=whole(0, 1), scale=real(0, 2), shift=real(-1, 1), dtype=ndd.float16,
        pad_output=True, output_layout=r.choice(("CHW", "HWC")), mean=real(0, 200, 3), std=real(1, 90, 3),
    )  # fmt: skip
    return Recipe([picture(r)], {"crop": whole(1, 9, 2), "out_of_bounds_policy": "pad", **options})


@recipe("resize", "experimental.resize")
def _resize(r: random.Random) -> Recipe:
    way = r.choice((
        {"size": whole(1, 15, 2)}, {"resize_x": whole(1, 15)}, {"resize_shorter": whole(1, 15)},
        {"resize_x": whole(1, 15), "resize_y": whole(1, 15)}, {"resize_longer": whole(1, 15)},
    ))  # fmt: skip
    options = some(
        r, interp_type=r.choice([*Interp]), antialias=r.random() < 0.5, dtype=ndd.float32
    )
    if r.random() < 0.3:
        options |= {"roi_start": real(0, 0.5, 2), "roi_end": real(0.5, 1, 2), "roi_relative": True}
    return Recipe([picture(r, layout=turned(r))], {**way, **options})


@recipe("resize_crop_mirror")
def _resize_crop_mirror(r: random.Random) -> Recipe:
    options = some(r, mirror=whole(0, 3), crop_pos_x=real(0, 1), interp_type=smooth(r))
    return Recipe([picture(r)], {"size": whole(6, 15, 2), "crop": whole(1, 6, 2), **options})


@recipe("tensor_resize")
def _tensor_resize(r: random.Random) -> Recipe:
    rank = r.choice((1, 2, 3))
    shape = sized(*[(1, 9)] * rank)
    way = {"sizes": whole(1, 9, rank)} if r.random() < 0.5 else {"scales": real(0.3, 2, rank)}
    return Recipe(
        [Input(r.choice(("uint8", "float32")), shape)], {**way, **some(r, antialias=False)}
    )


@recipe("rotate")
def _rotate(r: random.Random) -> Recipe:
    options = some(
        r,
        keep_size=True,
        fill_value=real(0, 9),
        interp_type=r.choice((Interp.INTERP_NN, Interp.INTERP_LINEAR)),
    )
    if not options.get("keep_size"):
        options |= some(r, size=whole(1, 20, 2))
    return Recipe([picture(r)], {"angle": real(-400, 400), **options})


@recipe("warp_affine")
def _warp_affine(r: random.Random) -> Recipe:
    options = some(r, size=whole(1, 20, 2), fill_value=real(0, 9), inverse_map=False)
    return Recipe([picture(r)], {"matrix": real(-2, 2, 6), **options})


@recipe("experimental.warp_perspective")
def _warp_perspective(r: random.Random) -> Recipe:
    options = some(r, size=whole(1, 20, 2), inverse_map=False, interp_type=smooth(r))
    return Recipe([picture(r, "uint8", "float32")], {"matrix": real(-2, 2, 9), **options})


@recipe("experimental.remap")
def _remap(r: random.Random) -> Recipe:
    def numbers(shape: Shape, noise: np.random.Generator) -> Any:
        return (noise.random(shape) * 16 - 2).astype(np.float32)

    maps = [
        Input("float32", sized((1, 9), (1, 9)), "HW", numbers),
        Input("float32", lambda r, o: o[1], "HW", numbers),
    ]
    return Recipe([picture(r, "uint8", "float32"), *maps], {"interp": smooth(r)})


@recipe("clahe")
def _clahe(r: random.Random) -> Recipe:
    tiles = {"tiles_x": whole(1, 5), "tiles_y": whole(1, 5), "clip_limit": real(0, 5)}
    return Recipe([picture(r, "uint8", channels=r.choice((1, 3)))], tiles)


@recipe("equalize")
def _equalize(r: random.Random) -> Recipe:
    return Recipe([picture(r, "uint8", layout=r.choice(("HW", "HWC", "CHW")))])


@recipe("color_space_conversion")
def _color_space(r: random.Random) -> Recipe:
    kinds = (Image.RGB, Image.BGR, Image.GRAY, Image.YCbCr)
    before, after = r.sample(kinds, 2)
    channels = 1 if before is Image.GRAY else 3
    return Recipe(
        [picture(r, "uint8", channels=channels)], {"image_type": before, "output_type": after}
    )


@recipe("debayer")
def _debayer(r: random.Random) -> Recipe:
    shape = lambda r, o: (2 * r.randint(1, 7), 2 * r.randint(1, 7))
    algorithm = r.choice(("default_npp", "bilinear_ocv", "edgeaware_ocv", "gray_ocv"))
    pixels = Input(r.choice(("uint8", "uint16")), shape, "HW")
    return Recipe([pixels], {"blue_position": whole(0, 1, 2), "algorithm": algorithm})


@recipe("erase")
def _erase(r: random.Random) -> Recipe:
    relative = r.random() < 0.5
    draw = real(0, 1, 2) if relative else real(0, 9, 2)
    options: dict[str, Any] = {
        "anchor": draw,
        "shape": draw,
        "axis_names": "HW",
        "normalized": relative,
    }
    return Recipe([picture(r)], options | some(r, fill_value=real(0, 255), centered_anchor=True))


@recipe("filter")
def _filter(r: random.Random) -> Recipe:
    kernel = lambda r: [[r.uniform(-1, 1) for _ in range(3)] for _ in range(2)]
    border = r.choice(("reflect_101", "reflect_1001", "clamp", "wrap", "constant"))
    return Recipe([picture(r, "uint8", "float32")], {"filter": kernel, "border": border})


@recipe("gaussian_blur")
def _blur(r: random.Random) -> Recipe:
    way = {"sigma": real(0.2, 3)} if r.random() < 0.5 else {"window_size": r.choice((3, 5, 9))}
    return Recipe([picture(r, layout=turned(r))], {**way, **some(r, dtype=ndd.float32)})


@recipe("laplacian")
def _laplacian(r: random.Random) -> Recipe:
    return Recipe(
        [picture(r)], some(r, window_size=r.choice((3, 5)), dtype=ndd.float32, scale=real(0, 2))
    )


@recipe("multi_paste")
def _multi_paste(r: random.Random) -> Recipe:
    options = some(r, in_ids=lambda r: [0, 0], dtype=ndd.float32)
    small = Input("uint8", sized((1, 4), (1, 4), 3), "HWC")
    return Recipe([small], {"output_size": whole(4, 12, 2), **options}, same_for_all=("in_ids",))


# -- shapes and axes -------------------------------------------------------------------------------


@recipe("pad")
def _pad(r: random.Random) -> Recipe:
    options = some(
        r,
        fill_value=real(-3, 3),
        align=lambda r: r.choice(([2, 2], [4, 3], [1, 5])),
        shape=whole(1, 20, 2),
    )
    return Recipe([picture(r)], {"axis_names": "HW", **options})


@recipe("slice")
def _slice(r: random.Random) -> Recipe:
    options = r.choice((
        {"rel_start": real(0, 0.6, 2), "rel_shape": real(0, 0.7, 2)},
        {"start": whole(-2, 6, 2), "shape": whole(1, 9, 2)},
        {"rel_start": real(0, 0.4, 2), "rel_end": real(0.4, 1.2, 2)},
    ))  # fmt: skip
    policy = r.choice(("pad", "trim_to_shape"))
    return Recipe([picture(r)], {**options, "axis_names": "HW", "out_of_bounds_policy": policy})


@recipe("reshape", "reinterpret")
def _reshape(r: random.Random) -> Recipe:
    way = r.choice(
        ({"shape": [-1]}, {"rel_shape": [1.0, -1.0]}, {"src_dims": [1, 0, 2]}, {"shape": [3, -1]})
    )
    return Recipe([picture(r)], way)


@recipe("squeeze")
def _squeeze(r: random.Random) -> Recipe:
    return Recipe(
        [Input("uint8", sized((1, 4), 1, (1, 4), 1))], {"axes": r.choice(([1], [3], [1, 3]))}
    )


@recipe("permute_batch")
def _permute_batch(r: random.Random) -> Recipe:
    return Recipe([picture(r)], {"indices": [0]}, is_batch=False)


@recipe("sequence_rearrange")
def _rearrange(r: random.Random) -> Recipe:
    frames = Input("uint8", sized(3, (1, 4), (1, 4), 3), "FHWC")
    return Recipe([frames], {"new_order": whole(0, 2, r.randint(1, 5))})


@recipe("element_extract")
def _extract(r: random.Random) -> Recipe:
    return Recipe(
        [Input("uint8", sized(3, (1, 4), (1, 4), 3), "FHWC")],
        {"element_map": r.choice(([0], [2, 1]))},
    )


@recipe("full")
def _full(r: random.Random) -> Recipe:
    return Recipe(
        [Input(r.choice(("uint8", "float32")), sized(), None)],
        {"shape": whole(0, 5, r.randint(1, 3))},
    )


@recipe(
    "reductions.max",
    "reductions.min",
    "reductions.sum",
    "reductions.mean",
    "reductions.rms",
    "reductions.mean_square",
)
def _reduction(r: random.Random) -> Recipe:
    way = r.choice(
        (
            {},
            {"axes": r.choice(([0], [1], [0, 2], [-1]))},
            {"axis_names": r.choice(("H", "HW", "C"))},
        )
    )
    return Recipe([picture(r)], {**way, **some(r, keep_dims=True)})


@recipe("reductions.std_dev", "reductions.variance")
def _spread(r: random.Random) -> Recipe:
    mean = Input("float32", sized())
    return Recipe([picture(r), mean], some(r, ddof=1, keep_dims=True))


@recipe("lookup_table")
def _lookup(r: random.Random) -> Recipe:
    options = {
        "keys": [0, 3, 200],
        "values": [7.0, -1.0, 3.5],
        **some(r, default_value=2.0, dtype=ndd.uint8),
    }
    return Recipe([picture(r, "uint8", "int16")], options)


# -- boxes, points and masks -----------------------------------------------------------------------


def _boxes(dims: int, ltrb: bool) -> Input:
    return Input("float32", sized((0, 5), 2 * dims), None, boxes_in(dims, ltrb))


@recipe("bb_flip")
def _bb_flip(r: random.Random) -> Recipe:
    ltrb = r.random() < 0.5
    return Recipe(
        [_boxes(2, ltrb)], {"ltrb": ltrb, "horizontal": whole(0, 1), "vertical": whole(0, 1)}
    )


@recipe("bbox_paste")
def _bbox_paste(r: random.Random) -> Recipe:
    ltrb = r.random() < 0.5
    return Recipe(
        [_boxes(2, ltrb)],
        {"ltrb": ltrb, "ratio": real(1, 3), "paste_x": real(0, 1), "paste_y": real(0, 1)},
    )


@recipe("bbox_rotate")
def _bbox_rotate(r: random.Random) -> Recipe:
    options = some(
        r, keep_size=True, mode=r.choice(("expand", "halfway", "fixed")), remove_threshold=0.3
    )
    options |= {"bbox_layout": "xyXY", "angle": real(-400, 400), "input_shape": whole(5, 20, 2)}
    return Recipe([_boxes(2, True)], options)


@recipe("box_encoder")
def _box_encoder(r: random.Random) -> Recipe:
    anchors = [0.0, 0.0, 0.5, 0.5, 0.3, 0.3, 0.9, 0.8, 0.1, 0.6, 0.4, 1.0]
    labels = Input("int32", lambda r, others: others[0][:1])
    options = some(r, offset=True, scale=10.0, criteria=0.3, stds=[0.1, 0.1, 0.2, 0.2])
    return Recipe([_boxes(2, True), labels], {"anchors": anchors, **options})


@recipe("random_bbox_crop")
def _bbox_crop(r: random.Random) -> Recipe:
    ltrb = r.random() < 0.5
    options = some(
        r, thresholds=[0.0, 0.3, 0.7], scaling=[0.3, 1.0], aspect_ratio=[0.5, 2.0], allow_no_crop=False,
        bbox_prune_threshold=0.2, total_num_attempts=20, num_attempts=3, output_bbox_indices=True,
    )  # fmt: skip
    if r.random() < 0.3:
        options |= {"crop_shape": whole(1, 9, 2), "input_shape": whole(9, 20, 2)}
        options = {k: v for k, v in options.items() if k not in ("scaling", "aspect_ratio")}
    return Recipe([_boxes(2, ltrb)], {"ltrb": ltrb, **options})


@recipe("coord_flip")
def _coord_flip(r: random.Random) -> Recipe:
    dims = r.choice((2, 3))
    options = some(r, flip_x=whole(0, 1), flip_y=whole(0, 1), center_x=real(0, 1))
    return Recipe([Input("float32", sized((0, 6), dims))], {"layout": "xyz"[:dims], **options})


@recipe("coord_transform")
def _coord_transform(r: random.Random) -> Recipe:
    way = r.choice(
        (
            {"MT": real(-2, 2, 6)},
            {"M": real(-2, 2, 4), "T": real(-2, 2, 2)},
            {"M": real(-2, 2)},
            {"T": real(-2, 2, 2)},
        )
    )
    points = Input(r.choice(("float32", "uint8", "int16")), sized((0, 6), 2))
    return Recipe([points], {**way, **some(r, dtype=ndd.int16)})


@recipe("random_crop_generator")
def _crop_generator(r: random.Random) -> Recipe:
    extents = Input("int64", sized(2), None, lambda shape, noise: noise.integers(1, 300, shape))
    return Recipe([extents], some(r, random_area=[0.1, 0.9], num_attempts=4))


@recipe("roi_random_crop")
def _roi_crop(r: random.Random) -> Recipe:
    end = {"roi_end": whole(3, 6, 2)} if r.random() < 0.5 else {"roi_shape": whole(0, 4, 2)}
    return Recipe(
        [],
        {
            "crop_shape": whole(1, 6, 2),
            "roi_start": whole(0, 3, 2),
            "in_shape": whole(6, 9, 2),
            **end,
        },
    )


def _labels(shape: Shape, noise: np.random.Generator) -> Any:
    return noise.integers(0, 4, shape)


@recipe("segmentation.random_object_bbox")
def _object_bbox(r: random.Random) -> Recipe:
    labels = Input(r.choice(("int32", "uint8")), sized((1, 9), (1, 9)), None, _labels)
    options = some(
        r,
        foreground_prob=real(0, 1),
        background=0,
        k_largest=2,
        cache_objects=True,
        output_class=True,
    )
    return Recipe([labels], {"format": r.choice(("anchor_shape", "start_end", "box")), **options})


@recipe("segmentation.random_mask_pixel")
def _mask_pixel(r: random.Random) -> Recipe:
    labels = Input(r.choice(("int32", "uint8", "float32")), sized((1, 9), (1, 9)), None, _labels)
    return Recipe([labels], some(r, foreground=whole(0, 1), value=whole(0, 3)))


@recipe("segmentation.select_masks")
def _select_masks(r: random.Random) -> Recipe:
    """Three masks, of one polygon each, of three vertices each."""
    polygons = np.array([[0, 0, 3], [1, 3, 6], [2, 6, 9]], np.int32)
    ids = Input(
        "int32",
        sized((1, 3)),
        None,
        lambda shape, noise: noise.permutation(3)[: shape[0]].astype(np.int32),
    )
    rows = Input("int32", sized(3, 3), None, lambda shape, noise: polygons)
    return Recipe([ids, rows, Input("float32", sized(9, 2))], some(r, reindex_masks=True))


@recipe("transforms.combine")
def _combine(r: random.Random) -> Recipe:
    return Recipe(
        [Input("float32", sized(2, 3)) for _ in range(r.choice((2, 3)))],
        some(r, reverse_order=True),
    )


@recipe("transforms.shear")
def _shear(r: random.Random) -> Recipe:
    way = {"shear": real(-2, 2, 2)} if r.random() < 0.5 else {"angles": real(-80, 80, 2)}
    return Recipe([], {**way, **some(r, center=real(0, 3, 2))})


# -- sound -----------------------------------------------------------------------------------------


@recipe("audio_resample")
def _audio_resample(r: random.Random) -> Recipe:
    way = r.choice((
        {"scale": real(0.05, 3)}, {"out_length": whole(0, 40)}, {"in_rate": real(1, 50), "out_rate": real(1, 50)},
    ))  # fmt: skip
    signal = Input(r.choice(("float32", "int16", "uint8")), sized((1, 600), r.choice((1, 2))))
    return Recipe([signal], {**way, **some(r, quality=r.choice((0.0, 90.0)), dtype=ndd.float32)})


@recipe("spectrogram")
def _spectrogram(r: random.Random) -> Recipe:
    length = r.choice((4, 9, 32))
    options = some(
        r,
        power=1,
        center_windows=False,
        reflect_padding=False,
        layout="tf",
        nfft=length + r.choice((0, 5)),
    )
    return Recipe(
        [Input("float32", sized((32, 99)))],
        {"window_length": length, "window_step": r.choice((1, 7)), **options},
    )


@recipe("power_spectrum")
def _power_spectrum(r: random.Random) -> Recipe:
    return Recipe(
        [Input("float32", sized((1, 5), (1, 40)))],
        some(r, axis=r.choice((0, 1)), nfft=r.choice((3, 16)), power=1),
    )


@recipe("mel_filter_bank")
def _mel(r: random.Random) -> Recipe:
    options = some(
        r, nfilter=r.choice((1, 9, 40)), mel_formula="htk", normalize=False, freq_low=100.0
    )
    return Recipe(
        [Input("float32", sized((2, 40), (1, 9)), "ft")], {"sample_rate": 8000.0, **options}
    )


@recipe("mfcc")
def _mfcc(r: random.Random) -> Recipe:
    options = some(
        r,
        n_mfcc=r.choice((1, 5, 40)),
        dct_type=r.choice((2, 3, 4)),
        lifter=2.0,
        axis=r.choice((0, 1)),
    )
    return Recipe([Input("float32", sized((1, 30), (1, 9)))], options)


@recipe("nonsilent_region")
def _nonsilent(r: random.Random) -> Recipe:
    return Recipe(
        [Input(r.choice(("float32", "int16")), sized((1, 90)))],
        {"window_length": r.choice((1, 5, 64))},
    )


@recipe("to_decibels", "preemphasis_filter")
def _signal(r: random.Random) -> Recipe:
    return Recipe([Input("float32", sized((1, 90)))])
