"""crop_mirror_normalize against the oracle; test_masks.py tests its modes and errors."""

from __future__ import annotations

import numpy as np
import pytest

from .oracle import check, ndd_call, per_sample
from .test_color import images

MEAN, STD = [120.0, 110.5, 99.9], [58.1, 57.0, 61.3]
SIZES = [(9, 12), (7, 8), (16, 11)]


def cmn(x, layout="HWC", rtol=0, **kwargs):
    return check("crop_mirror_normalize", x, layout=layout, rtol=rtol, **kwargs)


@pytest.mark.parametrize(
    ("dtype", "out"),
    [
        ("uint8", "float32"),
        ("uint8", "float16"),
        ("uint8", "int8"),
        ("uint16", "float32"),
        ("int16", "uint8"),
        ("int32", "float32"),
        ("float16", "float16"),
        ("float32", "uint8"),
    ],
)
def test_cmn_types(dtype, out):
    args = (
        dict(mean=[0.4, 0.5, 0.6], std=[0.01, 0.02, 0.005])
        if dtype[0] == "f"
        else dict(mean=MEAN, std=STD)
    )
    cmn(images(dtype, sizes=SIZES), crop=[5, 6], **args, scale=31.0, shift=7.5, dtype=out)


@pytest.mark.parametrize(
    ("layout", "lead"),
    [
        ("CHW", ()),
        ("FHWC", (2,)),
        ("FCHW", (2,)),
        ("DHWC", (4,)),
        ("CDHW", (4,)),
        ("FDHWC", (2, 4)),
    ],
)
def test_cmn_layouts(layout, lead):
    """Channels may be on any axis of the layout; results keep that layout."""
    place = layout.index("C")
    x = [np.moveaxis(a, -1, place).copy() for a in images(lead=lead, sizes=SIZES)]
    args = dict(mean=MEAN, std=STD, mirror=1, output_layout="")
    cmn(x, layout, crop=[5, 6], crop_pos_x=0.3, crop_pos_y=1.0, **args)
    if lead:
        cmn(x, layout, crop=[2, 5, 6], crop_pos_z=0.8, **args)


@pytest.mark.parametrize("layout", ["HWC", "CHW", "HCW", "WHC", "CWH", ""])
def test_cmn_output_layouts(layout):
    cmn(images(sizes=SIZES), mean=MEAN, std=STD, mirror=1, output_layout=layout)


def test_cmn_default_layout_of_sequences():
    """Upstream requires a layout for sequences; ndd moves channels before the spatial axes."""
    x = images(lead=(2,), sizes=SIZES)
    for layout, expected in (("FHWC", "FCHW"), ("DHWC", "CDHW")):
        (got,) = ndd_call("crop_mirror_normalize", x, layout=layout, mean=MEAN, std=STD)
        (want,) = cmn(x, layout, mean=MEAN, std=STD, output_layout=expected)
        assert got.layout == expected
        assert all(np.array_equal(a, b) for a, b in zip(got.arrays, want.arrays, strict=True))


def test_cmn_windows():
    x = images(sizes=SIZES)
    cmn(x)
    cmn(x, batch=False, crop=[3, 3])
    cmn(x, crop_h=5, crop_w=4, crop_pos_x=0.0)
    cmn(x, crop=[5.9, 0.0])
    cmn(x, crop=[5, 4], crop_pos_x=0.61, rounding="truncate")
    cmn(x, crop=[5, 4], crop_pos_x=0.61, rounding="round")
    cmn(
        x,
        crop=per_sample([[3.0, 4.0], [7.0, 8.0], [1.0, 1.0]]),
        crop_pos_y=per_sample([0.0, 1.0, 0.25]),
    )
    cmn(x, crop=[3, 3], mirror=per_sample([1, 0, 7]))
    cmn(images(sizes=[(1, 1), (0, 3)]), mean=MEAN, std=STD)


def test_cmn_numbers():
    x = images(sizes=SIZES)
    cmn(x, mean=[10.0], std=STD)
    cmn(x, mean=MEAN, std=[2.0], scale=0.3)
    cmn(x, mean=per_sample([MEAN, STD, MEAN]), std=per_sample([STD, STD, MEAN]), shift=0.1)
    cmn(x, mean=np.float32(MEAN), std=np.float32(STD), shift=-3.0, scale=7.0)
    cmn(x, std=[0.0, 1.0, 2.0])  # infinities and nan
    cmn(images(channels=1, sizes=SIZES), mean=[3.0], std=[4.0])


def test_cmn_padding():
    x = images(sizes=SIZES)
    pad = dict(crop=[12, 10], out_of_bounds_policy="pad", mean=MEAN, std=STD)
    cmn(x, **pad, mirror=per_sample([0, 1, 1]), crop_pos_x=0.3)
    cmn(x, **pad, fill_values=[1.0, 2.5, -3.0])
    cmn(x, **pad, fill_values=[2.7, 300.5, -3.5], dtype="uint8")
    cmn(x, **pad, fill_values=[])
    cmn(x, **{**pad, "out_of_bounds_policy": "trim_to_shape"}, fill_values=[9.0])


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
def test_cmn_pad_output(channels):
    x = images(channels=channels, sizes=SIZES)
    cmn(x, pad_output=True, crop=[5, 5], fill_values=[3.0])
    cmn(x, pad_output=True, output_layout="HWC", mirror=1, std=[2.0])
    pad = dict(pad_output=True, crop=[12, 10], out_of_bounds_policy="pad", crop_pos_y=0.2)
    if channels < 5:  # beyond four channels the oracle's padding is memory garbage
        cmn(x, **pad, fill_values=[3.0], mean=MEAN[:channels] if channels < 4 else [1.0])
    if channels == 3:
        cmn(x, **pad, fill_values=[1.0, 2.0, 3.0, 4.0], mean=MEAN, std=STD)
        cmn(x, **pad, fill_values=[1.0, 2.0, 3.0], mean=MEAN, std=STD)


def test_cmn_fill_with_one_mean():
    """Upstream writes garbage for a fill per channel with one mean and deviation for all."""
    x = images(sizes=[(2, 2)])
    args = dict(
        crop=[2, 4], crop_pos_x=0.0, out_of_bounds_policy="pad", fill_values=[1.0, 2.0, 3.0]
    )
    (got,) = ndd_call("crop_mirror_normalize", x, layout="HWC", mean=[5.0], std=[2.0], **args)
    assert got.arrays[0][:, :, 2:].tolist() == [[[v, v]] * 2 for v in (1.0, 2.0, 3.0)]
    assert np.array_equal(got.arrays[0][:, :, :2], (np.moveaxis(x[0], -1, 0) - np.float32(5)) / 2)
