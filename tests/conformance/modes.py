"""Checks that a program gives the same bits and the same errors in every mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ndd

from .oracle import Result, _results

MODES = (ndd.EvalMode.deferred, ndd.EvalMode.eager, ndd.EvalMode.sync_cpu, ndd.EvalMode.sync_full)


def same_everywhere(program: Callable[[], Any]) -> list[Result]:
    """`program` gives the same bits in all modes, fused or not, with one thread and with two."""
    with ndd.EvalMode.sync_cpu, ndd.EvalContext(num_threads=1):
        first = _results(program())
    for mode in MODES:
        with mode:
            _assert_same(first, _results(program()), f"in mode {mode.name}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NDD_FUSION", "0")
        _assert_same(first, _results(program()), "with NDD_FUSION=0")
    with ndd.EvalContext(num_threads=2):
        _assert_same(first, _results(program()), "with two threads")
    return first


def same_on_the_gpu(program: Callable[[Any], Any], images: list[Any], layout: str) -> None:
    """`program` of a batch gives the same bits on the CPU and on the simulated GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NDD_GPU", "simulate")
        on_cpu = _results(program(ndd.batch(images, layout=layout)))
        on_gpu = _results(program(ndd.batch(images, layout=layout).gpu()).cpu())
    _assert_same(on_cpu, on_gpu, "on the GPU")


def _assert_same(first: list[Result], second: list[Result], where: str) -> None:
    assert len(first) == len(second), where
    for a, b in zip(first, second, strict=True):
        assert (a.batch, a.shapes, a.dtype, a.layout) == (b.batch, b.shapes, b.dtype, b.layout), (
            where
        )
        assert [x.tobytes() for x in a.arrays] == [x.tobytes() for x in b.arrays], where


def error_everywhere(kind: type[Exception], text: str, program: Callable[[], Any]) -> None:
    """The call raises in all modes, with this text, the op's name and a line of the test."""
    messages = set()
    for mode in MODES:
        with mode, pytest.raises(kind) as caught:
            program()
        assert caught.type is kind, f"{caught.type.__name__} in mode {mode.name}: {caught.value}"
        messages.add(str(caught.value))
    assert len(messages) == 1, messages
    (message,) = messages
    assert text in message
    place = f"(called at {program.__code__.co_filename}:"
    assert place in message, f"{place} is missing in: {message}"
