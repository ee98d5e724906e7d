"""An error has one type, one message and one place, in every mode; and the next call works."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.core import errors
from tests.conftest import MODES
from tests.helpers import assert_same, host_call, line_of, ragged, worker_held


def image() -> ndd.Tensor:
    return ndd.tensor(np.zeros((4, 5, 3), np.uint8), layout="HWC")


Bad = tuple[Callable[[], Any], type[Exception], str]

# (call, type, what the message says); every call is on one line, which the message names
BAD_CALLS: dict[str, Bad] = {
    "rank": (lambda: ndd.brightness(ndd.tensor([1.0, 2.0])), ValueError, r"brightness: .*dimensions 1 .*HWC"),
    "dtype": (lambda: ndd.brightness(image() > 3), TypeError, r"brightness: element type bool"),
    "mixed dtype": (lambda: image() & 1.5, TypeError, r"and: .*must be integers, got u8 and f32"),
    "layout": (lambda: ndd.hue(ndd.transpose(image(), perm=[2, 0, 1])), ValueError, r"hue: the layout 'CHW'"),
    "layouts": (lambda: image() + ndd.tensor(np.zeros((4, 5, 3), np.uint8), layout="CHW"),
                ValueError, r"add: layouts 'HWC' and 'CHW' do not match"),
    "channels": (lambda: ndd.hue(image()[:, :, :2]), ValueError, r"hue: .*3 channels, sample 0 .*has 2"),
    "shapes": (lambda: image() + np.zeros((4, 4, 3), np.uint8), ValueError, r"add: shapes .*broadcast"),
    "ragged shapes": (lambda: ragged() + ragged([(5, 7, 3), (4, 9, 3), (8, 2, 3)]),
                      ValueError, r"add: shapes \(8, 3, 3\) and \(8, 2, 3\) .*\(sample 2\)"),
    "batch sizes": (lambda: ragged() * ragged([(5, 7, 3)]), ValueError, r"mul: .*batch size: 1 != 3"),
    "batch size of an argument": (lambda: ndd.brightness(ragged(), brightness=ndd.batch([1.0, 2.0])),
                                  ValueError, r"brightness: .*batch size: 3 != 2"),
    "window": (lambda: ndd.crop(ragged(), crop=(4, 4)), ValueError, r"crop: the window of sample 2 leaves"),
    "slice window": (lambda: ndd.slice(image(), start=(0, 2), end=(4, 6), axes=(0, 1)),
                     ValueError, r"slice: the window of sample 0 .*\(4, 5, 3\)"),
    "index": (lambda: image()[7], IndexError, r"index: index 7 is out of range for axis 0 of extent 4"),
    "sample index": (lambda: ndd.permute_batch(ragged(), indices=[0, 1, 9]),
                     IndexError, r"permute_batch: indices\[2\] = 9"),
    "too many indices": (lambda: image()[0, 0, 0, 0], IndexError, r"index: too many indices: 4 for 3"),
    "perm": (lambda: ndd.transpose(image(), perm=[0, 1]), ValueError, r"transpose: `perm` .*3 axes"),
    "volume": (lambda: ndd.reshape(image(), shape=[7, 7]), ValueError, r"reshape: sample 0 .*60 elements"),
    "missing argument": (lambda: ndd.cast(image(), dtype=None), TypeError, r"cast: .*`dtype`"),
    "None": (lambda: ndd.flip(None), TypeError, r"flip: `input` is missing"),
    "text": (lambda: ndd.flip("image.jpg"), TypeError, r"flip: `input` .*got str"),
    "vector for a number": (lambda: ndd.brightness(image(), brightness=[1.0, 2.0]),
                            ValueError, r"brightness: argument `brightness` must be a number"),
    "enum": (lambda: ndd.color_space_conversion(image(), image_type="RGB", output_type="LAB"),
             ValueError, r"color_space_conversion: argument `output_type`"),
    "policy": (lambda: ndd.crop(image(), crop=(2, 2), out_of_bounds_policy="ignore"),
               ValueError, r"crop: `out_of_bounds_policy` must be one of error, constant, const, pad"),
    "join": (lambda: ndd.cat(image(), ndd.cast(image(), dtype=ndd.float32)),
             ValueError, r"cat: .*input 0 is u8 3-D, input 1 is f32 3-D"),
    "division": (lambda: image() // 0, ValueError, r"floordiv: Integer division by zero"),
    "large integer": (lambda: image() + 2**40, OverflowError, r"add: integer 1099511627776 is out of range"),
    "device": (lambda: ndd.flip(image(), device="tpu"), ValueError, r"tpu"),
}  # fmt: skip


def raised(call: Callable[[], Any]) -> Exception:
    try:
        result = call()
    except Exception as error:
        return error
    raise AssertionError(f"no error, but {result}")


@pytest.mark.parametrize("name", BAD_CALLS)
def test_same_error_at_the_call_in_all_modes(name: str) -> None:
    call, kind, message = BAD_CALLS[name]
    found = []
    for mode in MODES:
        with ndd.EvalMode[mode]:
            error = raised(call)
            found.append((type(error), str(error)))
            # the session goes on
            assert_same(image() + 1, [np.ones((4, 5, 3), np.int32)])
    assert len(set(found)) == 1, found
    error = raised(call)
    assert type(error) is kind
    assert re.search(message, str(error)), str(error)
    _, first = inspect.getsourcelines(call)
    assert line_of(error) == f"test_errors.py:{first}"


def test_arguments_that_do_not_exist_or_are_missing(mode: str) -> None:
    with pytest.raises(TypeError, match=r"flip\(\) takes 1 positional argument \(`input`\), got 2"):
        ndd.flip(image(), image())
    unexpected = (
        r"flip\(\) got an unexpected keyword argument 'horizontl'; did you mean `horizontal`"
    )
    with pytest.raises(TypeError, match=unexpected):
        ndd.flip(image(), horizontl=1)
    with pytest.raises(TypeError, match="cast: argument `dtype` is required"):
        ndd.cast(image())


def test_the_users_line_is_named_also_through_our_own_helpers(mode: str) -> None:
    x = image()
    with pytest.raises(ValueError, match=r"test_errors.py") as caught:
        ndd.as_tensor(ndd.batch([np.zeros((2, 2, 3)), np.zeros((3, 2, 3))]), pad=True) + x
    assert line_of(caught.value) == f"test_errors.py:{inspect.currentframe().f_lineno - 1}"  # type: ignore[union-attr]


def test_files_beside_the_package_are_the_users() -> None:
    folder = inspect.getfile(ndd).rpartition("/ndd/")[0]
    assert errors._is_ours(f"{folder}/ndd/core/call.py")
    assert errors._is_ours(f"{folder}/ndd/fusion/plan/planner.py")
    assert errors._is_ours(f"{folder}/fusion/plan/planner.py")
    assert not errors._is_ours(f"{folder}/ndd_project/train.py")
    assert not errors._is_ours(f"{folder}/tests/test_x.py")


# -- functions that fail when they run -------------------------------------------------------------


def fails(a: Any) -> Any:
    raise OSError("no such file")


def test_failure_at_run_time_names_the_call(mode: str) -> None:
    x = ndd.tensor([1.0, 2.0])
    line = 0
    with pytest.raises(OSError) as caught:
        line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
        y = host_call(fails, x)
        z = y * 2.0
        np.asarray(z)
    assert str(caught.value).startswith("host_call: no such file (called at ")
    assert line_of(caught.value) == f"test_errors.py:{line}"


@pytest.mark.parametrize("mode", ["deferred", "eager"])
def test_failure_at_run_time_surfaces_at_use(mode: str) -> None:
    with ndd.EvalMode[mode], worker_held():
        x = ndd.tensor([1.0, 2.0])
        y = host_call(fails, x)
        z = y * 2.0
        for _ in range(2):  # every time
            with pytest.raises(
                OSError, match=r"host_call: no such file \(called at .*test_errors.py"
            ):
                np.asarray(z)
        with pytest.raises(OSError, match=r"host_call: no such file"):
            y.evaluate()
        with pytest.raises(OSError, match=r"host_call: no such file"):
            np.asarray(y + 1.0)  # a call on it fails when its result is read
        assert_same(x + 1.0, [np.float32([2, 3])])


@pytest.mark.parametrize("mode", ["deferred", "eager"])
def test_one_failure_leaves_the_other_results(mode: str) -> None:
    with ndd.EvalMode[mode], worker_held():
        x = ndd.tensor([1.0, 2.0])
        before = x + 1.0
        bad = host_call(fails, x)
        after = x * 3.0
        worse = bad * 2.0
        ndd.EvalContext.current().evaluate_all()
        assert_same(before, [np.float32([2, 3])])
        assert_same(after, [np.float32([3, 6])])
        with pytest.raises(OSError):
            worse.evaluate()


def test_the_cause_of_a_failure_is_kept(mode: str) -> None:
    def wraps(a: Any) -> Any:
        raise ValueError("bad header") from KeyError("width")

    with pytest.raises(ValueError, match=r"host_call: bad header") as caught:
        host_call(wraps, ndd.tensor([1.0])).evaluate()
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_exception_class_of_its_own_mind(mode: str) -> None:
    class Odd(Exception):
        def __init__(self, code: int, text: str) -> None:
            super().__init__(f"{code} {text}")

    def odd(a: Any) -> Any:
        raise Odd(7, "seven")

    with pytest.raises(RuntimeError, match=r"host_call: 7 seven \(called at .*test_errors.py"):
        host_call(odd, ndd.tensor([1.0])).evaluate()


def test_raising_again_does_not_pile_up_frames() -> None:
    with ndd.EvalMode.deferred:
        y = host_call(fails, ndd.tensor([1.0]))
        depths = []
        for _ in range(5):
            error = raised(y.evaluate)
            frames, tb = 0, error.__traceback__
            while tb is not None:
                frames, tb = frames + 1, tb.tb_next
            depths.append(frames)
    assert len(set(depths[1:])) == 1


def test_a_failing_batch_does_not_stop_a_loop(mode: str) -> None:
    def picky(a: Any) -> Any:
        if math.isnan(a[0]):
            raise ValueError("nan")
        return a

    good = 0
    for k in range(6):
        x = ndd.tensor([math.nan if k == 3 else float(k)])
        try:
            assert_same(host_call(picky, x) * 2.0, [np.float32([2 * k])])
            good += 1
        except ValueError as error:
            assert k == 3 and "host_call: nan" in str(error)
    assert good == 5
