"""Operators of Tensor and Batch: broadcasting, layouts, errors."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ndd
from tests.conformance.arithmetic_data import (
    MODES,
    OPERATORS,
    assert_same,
    half_tensor,
    ramp,
)
from tests.conformance.oracle import check_program, per_sample

# -- broadcasting --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((2, 3), (3,)), ((2, 3), (2, 1)), ((2, 1), (1, 3)), ((), (2, 2)), ((2, 2), ()), ((), ()),
        ((1,), (1,)), ((4,), (3, 1, 1)), ((0, 3), (1, 3)), ((0, 3), (3,)), ((0,), ()),
        ((2, 0), (2, 1)), ((1, 1, 1), (0,)), ((2, 1, 3, 1), (1, 2, 1, 2)), ((1, 3), (2, 2, 1)),
    ],
)  # fmt: skip
def test_broadcasting_of_tensors(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    got = check_program("sub", lambda lib, a, b: a - b, ramp(*left), ramp(*right))
    assert got[0].arrays[0].shape == np.broadcast_shapes(left, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([(2, 3), (4, 1)], [(3,), (1,)]),  # ragged
        ([(2, 3), (4, 3)], [(1, 3), (4, 1)]),  # another axis in each sample
        ([(2, 3), (0, 5)], [(), ()]),  # one number per sample
    ],
)
def test_broadcasting_of_batches(left: list[tuple[int, ...]], right: list[tuple[int, ...]]) -> None:
    a, b = [ramp(*s) for s in left], [ramp(*s) for s in right]
    check_program("sub", lambda lib, x, y: x - y, a, b)
    check_program("clamp", lambda lib, x, y: lib.math.clamp(x, y, 4.0), a, b)


def test_the_samples_of_a_batch_broadcast_independently() -> None:
    """Upstream applies the shape of one sample to all: [1] - [1, 2, 3] is [0, -1, -1] there."""
    a, b = [ramp(1), ramp(3), ramp(2)], [ramp(3), ramp(1), ramp(2)]
    for k, got in enumerate((ndd.batch(a) - ndd.batch(b)).tensors):
        assert_same(np.array(got), a[k] - b[k], f"sample {k}")


def test_batch_with_a_tensor() -> None:
    batch = [ramp(2, 3), ramp(1, 3), ramp(5, 3)]
    for tensor in (ramp(3), ramp(1, 1, 3), ramp()):
        check_program("sub", lambda lib, x, y: x - y, batch, tensor)
        check_program("sub", lambda lib, x, y: y - x, batch, tensor)
    check_program("sub", lambda lib, x: 1 - x, batch)
    check_program("sub", lambda lib, x: x - np.float64(0.5), batch)
    check_program("sub", lambda lib, x: x - [[1.0], [2.0]], [ramp(3), ramp(2)])
    check_program("eq", lambda lib, x: x == 2, batch)
    check_program("sin", lambda lib, x: lib.math.sqrt(x) * -x, batch)


def test_one_number_per_sample() -> None:
    batch = [np.full((2, 2), 10, np.uint8), np.full((1, 3), 200, np.uint8)]
    factor = per_sample([0.5, 2.0])
    got = ndd.batch(batch) * ndd.batch(list(factor.values))
    assert [np.array(t).max() for t in got.tensors] == [5.0, 400.0]


# -- layouts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (("HW", (2, 3)), ("HW", (2, 3))),
        (("HW", (2, 3)), (None, (2, 3))),
        ((None, (3,)), ("HW", (2, 3))),
        (("HW", (2, 3)), ("W", (3,))),
        (("W", (3,)), ("HW", (2, 3))),
        (("HWC", (2, 2, 3)), ("C", (3,))),
        (("HWC", (2, 2, 1)), (None, ())),
        (("HW", (2, 3)), (None, (1, 2, 3))),  # too short for the result
        (("W", (3,)), (None, (2, 3))),
    ],
)
def test_layout_of_the_result(left: Any, right: Any) -> None:
    layouts, shapes = (left[0], right[0]), (left[1], right[1])
    arrays = [ramp(*s) for s in shapes]
    for op in ("-", "<"):
        check_program(op, lambda lib, a, b, op=op: OPERATORS[op](a, b), *arrays, layout=layouts)
    batches = [[x, x] for x in arrays]
    check_program("-", lambda lib, a, b: a - b, *batches, layout=layouts)


def test_layout_of_unary_results() -> None:
    for call in (operator.neg, abs, operator.pos):
        check_program("unary", lambda lib, x, call=call: call(x), ramp(2, 3), layout="HW")
    check_program("exp", lambda lib, x: lib.math.exp(x), [ramp(2, 3), ramp(1, 1)], layout="HW")
    check_program("invert", lambda lib, x: ~x, np.ones((2, 3), bool), layout="HW")


# -- errors --------------------------------------------------------------------------------------


def booleans() -> Any:
    return ndd.tensor(np.array([True, False]))


def floats(*shape: int, layout: str | None = None) -> Any:
    return ndd.tensor(ramp(*shape), layout=layout)


def float_batch(*shapes: tuple[int, ...]) -> Any:
    return ndd.batch([ramp(*s) for s in shapes])


ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "bool + bool": (
        lambda: booleans() + booleans(),
        TypeError,
        r"add: operands of `\+` cannot all be bool",
    ),
    "bool - True": (
        lambda: booleans() - True,
        TypeError,
        "sub: operands of `-` cannot all be bool",
    ),
    "min of bools": (
        lambda: ndd.math.min(booleans(), booleans()),
        TypeError,
        "min: operands of `min` cannot",
    ),
    "-bool": (lambda: -booleans(), TypeError, "neg: the operand of `-` cannot be bool"),
    "sin of bool": (
        lambda: ndd.math.sin(booleans()),
        TypeError,
        "sin: the operand of `sin` cannot be bool",
    ),
    "float & int": (
        lambda: floats(2) & 1,
        TypeError,
        "and: operands of `&` must be integers, got f32 and i32",
    ),
    "int << float": (
        lambda: 1 << floats(2),
        TypeError,
        "shl: operands of `<<` must be integers, got i32 and f32",
    ),
    "~float": (lambda: ~floats(2), TypeError, "invert: operands of `~` must be integers, got f32"),
    "f16 | int": (
        lambda: half_tensor("float16", ramp(2)) | 1,
        TypeError,
        "or: operands of `|` must be integers, got f16 and i32",
    ),
    "batch sizes": (
        lambda: float_batch((2,), (2,)) + float_batch((2,), (2,), (2,)),
        ValueError,
        "add: Inconsistent batch size: 2 != 3",
    ),
    "one is no broadcast": (
        lambda: float_batch((2,), (2,)) * float_batch((2,)),
        ValueError,
        "mul: Inconsistent batch size: 1 != 2",
    ),
    "shapes": (
        lambda: floats(2, 3) + floats(2),
        ValueError,
        r"add: shapes \(2, 3\) and \(2,\) cannot be broadcast together",
    ),
    "shapes of one sample": (
        lambda: float_batch((2,), (3,)) < float_batch((2,), (2,)),
        ValueError,
        r"lt: shapes \(3,\) and \(2,\) cannot be broadcast together \(sample 1\)",
    ),
    "batch and tensor": (
        lambda: float_batch((2,), (3,)) - floats(2),
        ValueError,
        r"sub: shapes \(3,\) and \(2,\) .* \(sample 1\)",
    ),
    "clamp bounds": (
        lambda: ndd.math.clamp(floats(2), floats(3), 1.0),
        ValueError,
        r"clamp: shapes \(2,\) and \(3,\) and \(\)",
    ),
    "layouts": (
        lambda: floats(2, 3, layout="HW") + floats(2, 3, layout="WH"),
        ValueError,
        "add: layouts 'HW' and 'WH' do not match",
    ),
    "layout is no suffix": (
        lambda: floats(2, 3, layout="HW") + floats(3, layout="H"),
        ValueError,
        "add: layouts 'HW' and 'H' do not",
    ),
    "large int": (
        lambda: floats(2) * 3_000_000_000,
        OverflowError,
        "mul: integer 3000000000 is out of range for int32",
    ),
    "small int": (
        lambda: -(2**31) - 1 - floats(2),
        OverflowError,
        "sub: integer -2147483649 is out of range",
    ),
    "// 0": (lambda: ndd.tensor([1, 2]) // 0, ValueError, r"floordiv: Integer division by zero\."),
    "% 0": (lambda: ndd.tensor([1, 2]) % 0, ValueError, r"mod: Integer division by zero\."),
    "None": (lambda: floats(2) + None, TypeError, "add: cannot compute with NoneType"),
    "str": (lambda: floats(2) == "two", TypeError, "eq: cannot compute with str"),
    "complex": (lambda: 1j * floats(2), TypeError, "mul: cannot compute with complex"),
    "object": (lambda: floats(2) + object(), TypeError, "add: cannot make a tensor from object"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_the_same_in_all_modes(case: str) -> None:
    call, kind, message = ERRORS[case]
    texts = set()
    for mode in MODES:
        with ndd.EvalMode[mode]:
            with pytest.raises(kind, match=message) as caught:
                call()
            assert type(caught.value) is kind
            texts.add(str(caught.value))
            assert int(np.array(ndd.tensor([20]) + 1)[0]) == 21, "the next call works"
    assert len(texts) == 1
    lines, first = inspect.getsourcelines(call)
    place = texts.pop().rpartition("(called at ")[2].rstrip(")")
    file, _, line = place.rpartition(":")
    assert file == __file__
    assert first <= int(line) < first + len(lines)


def test_what_is_no_operator() -> None:
    x = ndd.tensor([1, 2])
    for call in (lambda: x @ x, lambda: divmod(x, 2), lambda: pow(x, 2, 3), lambda: round(x)):
        with pytest.raises(TypeError):
            call()
