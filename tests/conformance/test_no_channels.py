"""Masks, labels and volumes: geometric ops on layouts without channels, and on types that only move.

Upstream takes neither. A layout without C means the same as one channel, so that is the reference; the nearest
pixels of any type are those of an image of their own positions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.types import INTERP_CUBIC, INTERP_LINEAR, INTERP_NN
from tests.helpers import arrays

Op = Callable[..., Any]
MAPS = [np.linspace(0, end, 30, dtype=np.float32).reshape(5, 6) for end in (12, 9)]
IMAGE_OPS: dict[str, Op] = {
    "resize": lambda x, **k: ndd.resize(x, size=[7, 5], **k),
    "resize_crop_mirror": lambda x, **k: ndd.resize_crop_mirror(x, size=[9, 8], crop=[6, 7], mirror=1, **k),
    "random_resized_crop": lambda x, **k: ndd.random_resized_crop(x, size=[6, 7], rng=ndd.random.RNG(seed=3), **k),
    "rotate": lambda x, **k: ndd.rotate(x, angle=30.0, fill_value=1, **k),
    "warp_affine": lambda x, **k: ndd.warp_affine(x, matrix=[1, 0.2, 0, 0, 1.1, 0.5], size=[8, 9], **k),
    "warp_perspective": lambda x, **k: ndd.experimental.warp_perspective(x, matrix=[1, 0.1, 0, 0, 1, 0, 0, 0.02, 1], **k),
    "remap": lambda x, **k: ndd.experimental.remap(x, *MAPS, interp=k.get("interp_type")),
    "water": lambda x, **k: ndd.water(x, ampl_x=3.0, ampl_y=2.0, **k),
    "sphere": lambda x, **k: ndd.sphere(x, **k),
    "jitter": lambda x, **k: ndd.jitter(x, rng=ndd.random.RNG(seed=3), **k),
    "crop": lambda x, **k: ndd.crop(x, crop=[4, 5]),
    "flip": lambda x, **k: ndd.flip(x, vertical=1),
    "crop_mirror_normalize": lambda x, **k: ndd.crop_mirror_normalize(x, crop=[4, 5], mean=[3.0], std=2.0, mirror=1, output_layout=x.layout),
}  # fmt: skip
VOLUME_OPS: dict[str, Op] = {
    "resize": lambda x, **k: ndd.resize(x, size=[4, 7, 5], **k),
    "rotate": lambda x, **k: ndd.rotate(x, angle=30.0, axis=[1, 0, 1], fill_value=1, **k),
    "crop": lambda x, **k: ndd.crop(x, crop=[3, 4, 5]),
    "flip": lambda x, **k: ndd.flip(x, depthwise=1),
}


def noise(*shape: int) -> Any:
    return np.random.default_rng(7).integers(0, 256, shape).astype(np.uint8)


def two(shape: tuple[int, ...]) -> list[Any]:
    """A ragged batch."""
    return [noise(*shape), noise(*shape)[1:, 2:]]


def check_as_one_channel(op: Op, samples: list[Any], layout: str, **options: Any) -> None:
    plain = op(ndd.batch(samples, layout=layout), **options)
    channel = op(ndd.batch([s[..., None] for s in samples], layout=f"{layout}C"), **options)
    assert plain.layout == layout
    for got, want in zip(arrays(plain), arrays(channel), strict=True):
        np.testing.assert_array_equal(got, want[..., 0])


@pytest.mark.parametrize("name", IMAGE_OPS)
def test_images_without_channels(name: str) -> None:
    check_as_one_channel(IMAGE_OPS[name], two((10, 13)), "HW", interp_type=INTERP_LINEAR)
    if name in ("crop", "flip", "rotate", "resize"):
        plain = IMAGE_OPS[name](ndd.tensor(noise(10, 13)))  # two axes without a layout are H and W
        assert plain.layout == "HW"


@pytest.mark.parametrize("name", VOLUME_OPS)
def test_volumes_without_channels(name: str) -> None:
    check_as_one_channel(VOLUME_OPS[name], two((6, 7, 8)), "DHW")


def check_moved(op: Op, kind: Any, device: str, shape: tuple[int, ...], layout: str) -> None:
    """Values that no float32 holds arrive as they were, from the pixels that an image of positions shows."""
    count = int(np.prod(shape))
    places = arrays(
        op(
            ndd.tensor(
                np.arange(count, dtype=np.uint16).reshape(shape), layout=layout, device=device
            )
        ).cpu()
    )[0]
    values = np.random.default_rng(1).integers(0, 2**62, count).astype(kind)
    if kind is np.uint64:
        values |= np.uint64(2**63 + 1)
    values[:2] = 0, 1  # as the filled pixels are
    got = op(ndd.tensor(values.reshape(shape), layout=layout, device=device)).cpu()
    np.testing.assert_array_equal(arrays(got)[0], values[places])
    assert arrays(got)[0].dtype == kind


@pytest.mark.parametrize(
    "kind", [np.bool_, np.int8, np.int32, np.uint32, np.int64, np.uint64, np.float64]
)
def test_labels_of_every_type_are_resized(kind: Any, device: str) -> None:
    check_moved(
        lambda x: IMAGE_OPS["resize"](x, interp_type=INTERP_NN), kind, device, (10, 13), "HW"
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [("resize_crop_mirror", np.int64), ("random_resized_crop", np.int64), ("rotate", np.bool_), ("rotate", np.int64),
     ("warp_affine", np.uint64), ("warp_perspective", np.int64), ("remap", np.int64), ("water", np.bool_), ("jitter", np.uint32)],
)  # fmt: skip
def test_labels_of_every_type_are_moved(name: str, kind: Any) -> None:
    check_moved(lambda x: IMAGE_OPS[name](x, interp_type=INTERP_NN), kind, "cpu", (10, 13), "HW")


@pytest.mark.gpu
def test_labels_are_moved_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NDD_GPU", "simulate")
    for name in ("rotate", "water", "warp_perspective"):
        check_moved(
            lambda x, name=name: IMAGE_OPS[name](x, interp_type=INTERP_NN),
            np.int64,
            "gpu",
            (10, 13),
            "HW",
        )
    check_moved(
        lambda x: VOLUME_OPS["resize"](x, interp_type=INTERP_NN), np.int64, "gpu", (6, 7, 8), "DHW"
    )


def test_nearest_pixels_are_those_of_the_kernel() -> None:
    """Sums of steps decide ties, axes may be mirrored, regions lie outside: the list on the host is the same."""
    x = np.arange(31 * 37, dtype=np.uint16).reshape(31, 37)
    for options in (
        dict(size=[97, 11]), dict(size=[-30, 74]), dict(resize_shorter=90), dict(size=[20, 20], antialias=False),
        dict(size=[13, 50], roi_start=[-4.5, 30.25], roi_end=[40.0, 2.0]),
        dict(size=[9, 9], roi_start=[0.1, 0.2], roi_end=[0.3, 0.9], roi_relative=True),
    ):  # fmt: skip
        small, large = (
            ndd.resize(ndd.tensor(x.astype(k), layout="HW"), interp_type=INTERP_NN, **options)
            for k in (np.uint16, np.int64)
        )
        np.testing.assert_array_equal(np.asarray(large), np.asarray(small))
    one = dict(sizes=[40.0], axes=[1], interp_type=INTERP_NN)
    np.testing.assert_array_equal(
        ndd.tensor_resize(x.astype(np.int64), **one), ndd.tensor_resize(x, **one)
    )
    per_sample = dict(size=ndd.batch([[5, 6], [40, 3]]), interp_type=INTERP_NN)
    got = arrays(ndd.resize(ndd.batch([x.astype(np.int64)] * 2, layout="HW"), **per_sample))
    for a, b in zip(
        got, arrays(ndd.resize(ndd.batch([x] * 2, layout="HW"), **per_sample)), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_masks_are_cut() -> None:
    mask = noise(6, 7) > 99
    np.testing.assert_array_equal(
        ndd.crop(ndd.tensor(mask), crop=[2, 3], crop_pos_x=0.0, crop_pos_y=1.0), mask[4:, :3]
    )
    np.testing.assert_array_equal(ndd.slice(ndd.tensor(mask), start=[5, 1], end=[9, 3], out_of_bounds_policy="pad", fill_values=1.0),
                                  np.pad(mask[1:3, 5:], ((0, 0), (0, 2)), constant_values=True))  # fmt: skip


def test_what_interpolates_says_so() -> None:
    labels = ndd.tensor(np.zeros((4, 4), np.int64))
    for name in ("resize", "rotate", "warp_perspective", "water", "random_resized_crop"):
        with pytest.raises(
            TypeError,
            match=r"element type i64 is not supported by this filter.*INTERP_NN moves values of every type",
        ):
            IMAGE_OPS[name](labels, interp_type=INTERP_LINEAR)
    with pytest.raises(TypeError, match="element type bool is not supported"):
        ndd.resize(labels > 0, size=[2, 2], min_filter=INTERP_NN, mag_filter=INTERP_CUBIC)
    with pytest.raises(ValueError, match="`mean` has 3 values, but the layout HW has no channels"):
        ndd.crop_mirror_normalize(ndd.tensor(noise(4, 4)), mean=[1.0, 2.0, 3.0])
    with pytest.raises(
        ValueError, match="`mapx` must be a map of rows and columns, got 3 dimensions"
    ):
        ndd.experimental.remap(ndd.tensor(noise(4, 4)), *[m[..., None] for m in MAPS])
