"""sequence_rearrange against the oracle."""

from __future__ import annotations

import numpy as np
import pytest

import ndd
from tests.helpers import kernels, nothing_compiled, samples

from .modes import error_everywhere, same_everywhere, same_on_the_gpu
from .oracle import check, per_sample

SHAPES = [(3, 4, 5, 3), (5, 1, 1, 3), (2, 7, 2, 3)]
ORDERS = [[2, 0], [4, 4, 4, 0], [1]]
DTYPES = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "?"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_types(dtype):
    x = samples(SHAPES, np.dtype(dtype).type)
    check("sequence_rearrange", x, layout="FHWC", new_order=per_sample(ORDERS))


def test_orders():
    for shapes in ([(3, 4), (5, 2), (2, 3)], [(2, 3, 4), (4, 1, 1), (3, 0, 2)]):
        x = samples(shapes, np.int32)
        for order in ([1, 0, 1], [0], 1, [1, 1, 1, 1, 0, 0]):
            check("sequence_rearrange", x, new_order=order)
        check("sequence_rearrange", x, batch=False, new_order=[1, 0])
        last = per_sample([[s[0] - 1, 0] for s in shapes], np.int64)
        check("sequence_rearrange", x, new_order=last)
        check("sequence_rearrange", x, new_order=per_sample([[1.0], [1.0, 0.0], [0.0]]))
    # One sequence, rearranged in several ways.
    check("sequence_rearrange", samples([(3, 4)])[0], new_order=per_sample([[2, 0], [1]]))


@pytest.mark.parametrize("layout", ["FHWC", "FCHW", "FDHWC", "FX", "F"])
def test_layouts(layout):
    shape = (3, *range(2, 1 + len(layout)))
    if len(layout) > 1:
        check("sequence_rearrange", samples([shape]), layout=layout, new_order=[2, 2, 0])


def program(x):
    y = ndd.sequence_rearrange(ndd.flip(x), new_order=ndd.batch(ORDERS))
    return ndd.crop_mirror_normalize(y, mean=[1.0, 2.0, 3.0], std=[2.0])


def test_same_bits_in_all_modes():
    same_everywhere(lambda: program(ndd.batch(samples(SHAPES), layout="FHWC")))


@pytest.mark.gpu
def test_same_bits_on_the_gpu():
    same_on_the_gpu(program, samples(SHAPES), "FHWC")


def test_it_fuses_and_compiles_once():
    x = ndd.batch(samples(SHAPES), layout="FHWC")
    with ndd.EvalMode.deferred:
        assert kernels(program(x)) == 1
        program(x).evaluate()
        with nothing_compiled():
            again = ndd.sequence_rearrange(ndd.flip(x), new_order=[0, 1, 0, 1, 1])
            ndd.crop_mirror_normalize(again, mean=[1.0, 2.0, 3.0], std=[2.0]).evaluate()


def test_errors():
    x = ndd.batch(samples(SHAPES), layout="FHWC")
    image = ndd.tensor(samples([(4, 5, 3)])[0], layout="HWC")
    cases = [
        ("`new_order` names frame 2 for sample 2, which has 2 frames", x, [0, 2]),
        ("`new_order` names frame -1 for sample 0, which has 3 frames", x, [-1]),
        ("`new_order` names frame 9 for sample 1", x, ndd.batch([[2, 0], [1, 9], [1]])),
        ("`new_order` must not be empty, as it is for sample 0", x, []),
        ("the layout of `input` must begin with F, got 'HWC'", image, [0]),
        ("`input` must have at least 2 dimensions, got 1", ndd.tensor([1, 2]), [0]),
        ("argument `new_order` must be a list of numbers, got 2 dimensions", x, [[0, 1], [1, 0]]),
    ]
    for text, given, order in cases:
        error_everywhere(
            ValueError, text,
            lambda given=given, order=order: ndd.sequence_rearrange(given, new_order=order),
        )  # fmt: skip
    with pytest.raises(TypeError, match="argument `new_order` is required"):
        ndd.sequence_rearrange(x)
