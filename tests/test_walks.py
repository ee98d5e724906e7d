"""Real calls visit the files that README and CONTRIBUTING list, in the same order."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

import ndd
from tests.helpers import ROOT, forget_plans

MOST_STOPS = 9
_ROW = re.compile(r"^\| *\d+ *\| \[(\S+?)\]\((\S+?)\) \|", re.MULTILINE)


def stops_of(page: str, heading: str) -> list[str]:
    """Files of the numbered table below a heading, in order."""
    text = re.split(r"\n##+ ", (ROOT / page).read_text().split(heading, 1)[1], maxsplit=1)[0]
    rows = _ROW.findall(text)
    assert rows and all(name == link for name, link in rows), f"{page}: no table below {heading!r}"
    return [name for name, _ in rows]


def first_visits(program, files: list[str]) -> list[str]:
    """The files whose functions a program calls, in the order of their first calls."""
    known = {str((ROOT / f).resolve()): f for f in files}
    visited: dict[str, None] = {}

    def watch(frame, event, argument) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            path = str(Path(frame.f_code.co_filename).resolve())
            if path in known:
                visited[known[path]] = None
            if len(visited) == len(known):
                sys.setprofile(None)  # the compiler, which comes next, makes millions of calls

    sys.setprofile(watch)
    try:
        program()
    finally:
        sys.setprofile(None)
    return list(visited)


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path) -> None:
    """Start without plans and compiled kernels."""
    from ndd.kernels.cpu import runtime

    forget_plans(monkeypatch)
    monkeypatch.setattr(runtime, "_kernels", {})
    runtime.kernel_file.cache_clear()  # it renders here, not in the thread that compiles
    monkeypatch.setenv("NDD_CACHE_DIR", str(tmp_path))


def test_a_call_of_resize_passes_the_stops_of_the_readme() -> None:
    stops = stops_of("README.md", "## How a call becomes a kernel")
    assert len(stops) <= MOST_STOPS and len(set(stops)) == len(stops)
    images = ndd.batch([np.zeros((30, 40, 3), np.uint8)], layout="HWC")

    def program() -> None:
        with ndd.EvalMode.deferred:
            ndd.resize(images, size=[20, 20]).evaluate()

    assert first_visits(program, stops) == stops


def test_a_reader_to_torch_passes_the_stops_of_contributing(tmp_path) -> None:
    stops = stops_of("CONTRIBUTING.md", "### From a reader to `.torch()`")
    assert len(stops) <= MOST_STOPS and len(set(stops)) == len(stops)
    for k in range(2):
        _, data = cv2.imencode(".jpg", np.full((30 + k, 40, 3), 100, np.uint8))
        (tmp_path / f"{k}.jpg").write_bytes(data.tobytes())

    def program() -> None:
        reader = ndd.readers.File(files=[tmp_path / f"{k}.jpg" for k in range(2)])
        with ndd.EvalMode.deferred:
            for jpegs, _labels in reader.next_epoch(batch_size=2):
                x = ndd.decoders.image(jpegs)
                ndd.crop(x, crop=[20, 20]).torch()

    assert first_visits(program, stops) == stops
