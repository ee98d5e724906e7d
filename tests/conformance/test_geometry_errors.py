"""Wrong arguments of exact geometry: the same clear error in every mode."""

from __future__ import annotations

import numpy as np
import pytest

import ndd

from .geometry_data import numbers
from .modes import MODES, error_everywhere

HWC = ndd.tensor(numbers((4, 5, 3)), layout="HWC")
PAIR = ndd.batch([numbers((4, 5, 3)), numbers((2, 2, 3))], layout="HWC")
PLAIN = ndd.tensor(numbers((4, 5)))
NAN = float("nan")

ERRORS = [
    # rank and layout
    (ValueError, "number of dimensions 1 does not match", lambda: ndd.flip(PLAIN[0])),
    (
        ValueError,
        "layout 'WH' does not match any of the allowed",
        lambda: ndd.flip(ndd.tensor([[1]], layout="WH")),
    ),
    (ValueError, "number of dimensions 1 does not match", lambda: ndd.crop(PLAIN[0], crop=[1, 1])),
    (ValueError, "a scalar cannot be padded", lambda: ndd.pad(ndd.tensor(1))),
    (
        ValueError,
        "axis 'W' is not present in the layout of the input (none)",
        lambda: ndd.slice(ndd.tensor([1]), start=[0], end=[1]),
    ),
    (
        ValueError,
        "axis 'Q' is not present in the layout of the input ('HWC')",
        lambda: ndd.slice(HWC, start=[0], end=[1], axis_names="Q"),
    ),
    (ValueError, "axis 'W' is not present", lambda: ndd.pad(PLAIN, axis_names="W")),
    (ValueError, "axis 'N' is not present", lambda: ndd.squeeze(HWC, axis_names="N")),
    (ValueError, "axis 'N' is not present", lambda: ndd.cat(HWC, HWC, axis_name="N")),
    (ValueError, "scalars cannot be joined", lambda: ndd.cat(ndd.tensor(1), ndd.tensor(2))),
    # types
    (
        ValueError,
        "one type and rank: input 0 is u8 3-D, input 1 is i32 3-D",
        lambda: ndd.stack(HWC, ndd.cast(HWC, dtype=ndd.int32)),
    ),
    (
        ValueError,
        "one type and rank: input 0 is u8 3-D, input 1 is u8 2-D",
        lambda: ndd.cat(HWC, PLAIN),
    ),
    (TypeError, "None", lambda: ndd.flip(None)),
    (TypeError, "got str", lambda: ndd.flip("image")),
    # shapes
    (
        ValueError,
        "sample 0 of input 0 has (4, 5, 3), of input 1 (4, 4, 3)",
        lambda: ndd.stack(HWC, HWC[:, :4]),
    ),
    (
        ValueError,
        "differ only along axis 0: sample 0 of input 0 has shape (4, 5, 3), of input 1 (4, 4, 3)",
        lambda: ndd.cat(HWC, HWC[:, :4]),
    ),
    (ValueError, "do not fill the shape (7, 9)", lambda: ndd.reshape(HWC, shape=[7, 9])),
    (ValueError, "do not fill the shape", lambda: ndd.reshape(HWC, shape=[7, -1])),
    (
        ValueError,
        "do not fill the shape",
        lambda: ndd.reshape(ndd.zeros(shape=[0]), shape=[2**32, 2**32]),
    ),
    (ValueError, "do not fill the shape", lambda: ndd.reshape(ndd.zeros(shape=[0]), shape=[0, -1])),
    (ValueError, "only one extent may be negative", lambda: ndd.reshape(HWC, shape=[-1, -1])),
    (ValueError, "`src_dims` must lie in [-1, 2]", lambda: ndd.reshape(HWC, src_dims=[0, 3])),
    (
        ValueError,
        "`src_dims` has 1 values, `rel_shape` 2",
        lambda: ndd.reshape(HWC, src_dims=[0], rel_shape=[1, 1]),
    ),
    (
        ValueError,
        "`rel_shape` has 5 values, the input has 3",
        lambda: ndd.reshape(HWC, rel_shape=[1] * 5),
    ),
    (ValueError, "exclude each other", lambda: ndd.reshape(HWC, shape=[60], rel_shape=[1])),
    (ValueError, "nothing to do", lambda: ndd.reshape(HWC)),
    (ValueError, "nothing to do", lambda: ndd.reinterpret(HWC)),
    (
        ValueError,
        "layout 'AB' does not fit a shape of 1",
        lambda: ndd.reshape(HWC, shape=[60], layout="AB"),
    ),
    (
        ValueError,
        "innermost extent 3 x 1 bytes does not divide",
        lambda: ndd.reinterpret(HWC, dtype=ndd.int16),
    ),
    (
        ValueError,
        "a scalar cannot become another size",
        lambda: ndd.reinterpret(ndd.tensor(1), dtype=ndd.int16),
    ),
    (ValueError, "axis 0 of sample 0 has extent 4, not 1", lambda: ndd.squeeze(HWC, axes=[0])),
    (
        ValueError,
        "axis 0 of sample 0 has extent 0, not 1",
        lambda: ndd.squeeze(ndd.zeros(shape=[0, 3]), axes=[0]),
    ),
    (
        ValueError,
        "`min_canvas_size` must be at least 0, got -1 for sample 0",
        lambda: ndd.paste(HWC, fill_value=1, ratio=1.0, min_canvas_size=-1),
    ),
    (ValueError, "give either `axes` or `axis_names`", lambda: ndd.squeeze(HWC)),
    (
        ValueError,
        "axis 3 is out of range [-3, 2] for 3-D input",
        lambda: ndd.squeeze(HWC, axes=[3]),
    ),
    (ValueError, "must not be negative, got (-1,)", lambda: ndd.expand_dims(HWC, axes=[-1])),
    (ValueError, "must differ", lambda: ndd.expand_dims(HWC, axes=[0, 0])),
    (ValueError, "leave gaps", lambda: ndd.expand_dims(HWC, axes=[9])),
    (ValueError, "must name 1 axes", lambda: ndd.expand_dims(HWC, axes=[0], new_axis_names="AB")),
    (
        ValueError,
        "needs an input with a layout",
        lambda: ndd.expand_dims(PLAIN, axes=[0], new_axis_names="A"),
    ),
    (
        ValueError,
        "must be a permutation of the 3 axes, got (0, 1)",
        lambda: ndd.transpose(HWC, perm=[0, 1]),
    ),
    (
        ValueError,
        "must be a permutation of the 3 axes, got (0, 1, 1)",
        lambda: ndd.transpose(HWC, perm=[0, 1, 1]),
    ),
    (
        ValueError,
        "`output_layout` 'AB' does not fit 3 axes",
        lambda: ndd.transpose(HWC, output_layout="AB"),
    ),
    (
        ValueError,
        "`axis` must lie in [-3, 3] for 3-D inputs, got 4",
        lambda: ndd.stack(HWC, HWC, axis=4),
    ),
    (
        ValueError,
        "`axis_name` must be one letter, got 'AB'",
        lambda: ndd.stack(HWC, HWC, axis_name="AB"),
    ),
    (ValueError, "axis 3 is out of range", lambda: ndd.cat(HWC, HWC, axis=3)),
    (ValueError, "exclude each other", lambda: ndd.cat(HWC, HWC, axis=0, axis_name="H")),
    (ValueError, "must not be negative", lambda: ndd.zeros(shape=[2, -1])),
    (
        ValueError,
        "the result is too large: shape (1000000, 1000000, 1000000)",
        lambda: ndd.ones(shape=[10**6] * 3),
    ),
    (
        ValueError,
        "layout 'HWC' has 3 axes, but the data has 1",
        lambda: ndd.zeros(shape=[2], layout="HWC"),
    ),
    (ValueError, "cannot be broadcast to (4,)", lambda: ndd.full(ndd.tensor([1, 2]), shape=[4])),
    (ValueError, "more than the shape's 0", lambda: ndd.full(ndd.tensor([1, 2]))),
    # number of values and of samples
    (ValueError, "`crop` must have 2 or 3 values, got 1", lambda: ndd.crop(HWC, crop=[1])),
    (ValueError, "must be given together", lambda: ndd.crop(HWC, crop_w=1)),
    (ValueError, "cannot be combined", lambda: ndd.crop(HWC, crop=[1, 1], crop_w=1, crop_h=1)),
    (ValueError, "`start` has 3 values for 2 axes", lambda: ndd.slice(HWC, start=[0, 0, 0])),
    (ValueError, "`shape` has 2 values for 3 axes", lambda: ndd.pad(HWC, shape=[9, 9])),
    (ValueError, "`anchor` needs 2 values, got 1", lambda: ndd.slice(HWC, [0.0], [1.0])),
    (ValueError, "needs a positional shape", lambda: ndd.slice(HWC, [0.0, 0.0])),
    (ValueError, "cannot be combined", lambda: ndd.slice(HWC, [0, 0], [1, 1], start=[0, 0])),
    (ValueError, "bounds are missing", lambda: ndd.slice(HWC)),
    (ValueError, "exclude each other", lambda: ndd.slice(HWC, start=[0, 0], rel_start=[0, 0])),
    (ValueError, "exclude each other", lambda: ndd.slice(HWC, end=[1, 1], shape=[1, 1])),
    (ValueError, "exclude each other", lambda: ndd.slice(HWC, end=[1], axes=[0], axis_names="H")),
    (TypeError, "both be integers or both be floats", lambda: ndd.slice(HWC, [0, 0], [1.0, 1.0])),
    (ValueError, "axis -3 occurs more than once", lambda: ndd.slice(HWC, start=[0], axes=[0, -3])),
    (ValueError, "axis 3 is out of range", lambda: ndd.pad(HWC, axes=[3])),
    (
        ValueError,
        "Inconsistent batch size: 2 != 3",
        lambda: ndd.flip(PAIR, horizontal=ndd.batch([1, 0, 1])),
    ),
    (ValueError, "Inconsistent batch size: 2 != 3", lambda: ndd.stack(PAIR, ndd.batch([1, 0, 1]))),
    (TypeError, "must be a number, got a list", lambda: ndd.flip(HWC, horizontal=[1, 0])),
    (
        ValueError,
        "one number per sample, got shape (2,)",
        lambda: ndd.flip(HWC, horizontal=ndd.tensor([1, 0])),
    ),
    (ValueError, "must be positive, got 0", lambda: ndd.pad(HWC, align=0)),
    (
        ValueError,
        "`fill_values` has 2 values, but sample 0 of the result has 3 channels",
        lambda: ndd.crop(HWC, crop=[1, 1], out_of_bounds_policy="pad", fill_values=[1, 2]),
    ),
    (
        ValueError,
        "no channel axis C",
        lambda: ndd.slice(PLAIN, start=[0, 0], out_of_bounds_policy="pad", fill_values=[1, 2]),
    ),
    (TypeError, "at least one input is needed", lambda: ndd.stack()),
    (
        TypeError,
        "must be the same for all samples, got a Batch",
        lambda: ndd.squeeze(PAIR, axes=ndd.batch([0, 1])),
    ),
    # windows
    (
        ValueError,
        "sample 1 leaves the input: shape (2, 2, 3), start (-1, 0, 0), size (3, 2, 3)",
        lambda: ndd.crop(PAIR, crop=[3, 2]),
    ),
    (
        ValueError,
        "the window of sample 0 leaves the input",
        lambda: ndd.slice(HWC, start=[0, 0], end=[6, 1]),
    ),
    (
        ValueError,
        "the end of the window lies before its start in sample 0: start (3.0, 0.0), end (2.0, 5.0)",
        lambda: ndd.slice(HWC, start=[3, 0], end=[2, 5]),
    ),
    (
        ValueError,
        "`shape` must not be negative, got -1",
        lambda: ndd.slice(HWC, start=[0, 0], shape=[-1, 1]),
    ),
    (
        ValueError,
        "`crop_pos_x` must lie in [0, 1], got 1.5 for sample 1",
        lambda: ndd.crop(PAIR, crop=[1, 1], crop_pos_x=ndd.batch([0.5, 1.5])),
    ),
    (
        ValueError,
        "`crop_pos_y` must lie in [0, 1], got nan",
        lambda: ndd.crop(HWC, crop=[1, 1], crop_pos_y=NAN),
    ),
    (
        ValueError,
        "reflect, reflect_1001, reflect1001, 1001, reflect_101, reflect101, 101, wrap, got 'replicate'",
        lambda: ndd.crop(HWC, crop=[1, 1], out_of_bounds_policy="replicate"),
    ),
    (
        ValueError,
        "`rounding` must be one of round, truncate, got 'up'",
        lambda: ndd.crop(HWC, crop=[1, 1], rounding="up"),
    ),
    (
        ValueError,
        "`crop` is out of range: nan",
        lambda: ndd.crop(HWC, crop=[NAN, 1], out_of_bounds_policy="pad"),
    ),
    (
        ValueError,
        "`crop` is out of range: inf",
        lambda: ndd.crop(HWC, crop=[1e300, 1], out_of_bounds_policy="pad"),
    ),
    (
        ValueError,
        "`rel_start` is out of range: nan",
        lambda: ndd.slice(HWC, rel_start=[NAN, 0], out_of_bounds_policy="pad"),
    ),
    (
        ValueError,
        "`rel_end` is out of range: inf",
        lambda: ndd.slice(HWC, rel_end=[float("inf"), 0], out_of_bounds_policy="trim_to_shape"),
    ),
    (
        ValueError,
        "`anchor` is out of range: nan",
        lambda: ndd.slice(HWC, [NAN, 0.0], [1.0, 1.0], out_of_bounds_policy="pad"),
    ),
    (
        ValueError,
        "`start` is out of range: 4.61169e+18",
        lambda: ndd.slice(HWC, start=[2**62, 0], shape=[2**62, 1], out_of_bounds_policy="pad"),
    ),
    (
        ValueError,
        "must be a 64-bit integer, got 1180591620717411303424",
        lambda: ndd.slice(HWC, start=[2**70, 0]),
    ),
    (
        ValueError,
        "`start` must be a 64-bit integer, got nan",
        lambda: ndd.slice(HWC, start=ndd.tensor([NAN, 0.0])),
    ),
    (
        ValueError,
        "`start` must be a 64-bit integer, got 1.84467e+19",
        lambda: ndd.slice(HWC, start=np.array([2**64 - 1, 0], np.uint64)),
    ),
    (
        ValueError,
        "the result is too large",
        lambda: ndd.slice(HWC, start=[0, 0], shape=[2**40, 2**40], out_of_bounds_policy="pad"),
    ),
    (ValueError, "the result is too large", lambda: ndd.pad(HWC, shape=[2**31, 2**31, 2**31])),
    (ValueError, "`align` is out of range", lambda: ndd.pad(HWC, align=2**62)),
    (
        ValueError,
        "`rel_shape` is out of range: nan",
        lambda: ndd.reshape(HWC, rel_shape=[NAN, 1, 1]),
    ),
    # indexing
    (
        IndexError,
        "index 4 is out of range for axis 0 of extent 4 (sample 0, shape (4, 5, 3))",
        lambda: HWC[4],
    ),
    (IndexError, "index -6 is out of range for axis 1 of extent 5", lambda: HWC[0, -6]),
    (
        IndexError,
        "index 2 is out of range for axis 0 of extent 2 (sample 1, shape (2, 2, 3))",
        lambda: PAIR.slice[2],
    ),
    (IndexError, "is out of range for axis 0", lambda: HWC[2**70]),
    (IndexError, "too many indices: 4 for 3 dimensions", lambda: HWC[0, 0, 0, 0]),
    (IndexError, "only one Ellipsis is allowed", lambda: HWC[..., 0, ...]),
    (IndexError, "a scalar cannot be indexed", lambda: ndd.tensor(1)[0]),
    (ValueError, "a slice step cannot be zero", lambda: HWC[::0]),
    (
        TypeError,
        "an index must be an integer, a slice or a scalar tensor, got list",
        lambda: HWC[[0, 1]],
    ),
    (
        TypeError,
        "an index must be an integer, a slice or a scalar tensor, got str",
        lambda: HWC["H"],
    ),
    (
        TypeError,
        "an index tensor must be a scalar, got 1 dimensions",
        lambda: HWC[ndd.tensor([0, 1])],
    ),
    (TypeError, "a Tensor cannot be indexed with a Batch", lambda: HWC[ndd.batch([0, 1])]),
    (ValueError, "Inconsistent batch size: 2 != 3", lambda: PAIR.slice[ndd.batch([0, 1, 0])]),
    (ValueError, "must be a 64-bit integer, got nan", lambda: HWC[ndd.tensor(NAN)]),
]


@pytest.mark.parametrize("case", range(len(ERRORS)), ids=lambda k: f"{k}-{ERRORS[k][1][:40]}")
def test_errors(case):
    kind, text, program = ERRORS[case]
    error_everywhere(kind, text, program)
    for mode in MODES:  # and the next call works
        with mode:
            assert np.asarray(ndd.flip(HWC)[0, 0]).tolist() == np.asarray(HWC)[0, -1].tolist()


def test_python_reports_wrong_names_itself():
    for program, text in (
        (lambda: ndd.flip(), "missing 1 required positional argument: 'input'"),
        (lambda: ndd.flip(HWC, sideways=1), "unexpected keyword argument 'sideways'"),
        (lambda: ndd.flip(HWC, 1), "takes 1 positional argument"),
    ):
        with pytest.raises(TypeError, match=text):
            program()
