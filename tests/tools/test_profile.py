"""Profiles: traced stages and their sums, NVTX ranges, kernel names; and no records when off."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.core.handle import executor_of
from ndd.fusion.plan.planner import PLANNER
from ndd.fusion.plan.program import collect
from ndd.kernels.common import nvtx_ranges, trace
from ndd.kernels.cpu.runtime import MAX_NAME, kernel_file, shortened
from ndd.runtime.context import current_context
from ndd.tools import profiling
from ndd.tools.profiling import StageEvent, overlap, own_pieces, summarise, union
from tests.decoders.fixtures import encoded, photo
from tests.helpers import forget_plans, run_python

FILES, BATCH = 6, 3
HERE = Path(__file__).name


@pytest.fixture(autouse=True)
def nothing_is_pending() -> None:
    """Wait for pending work of earlier tests, which must not run during a profile."""
    executor_of(current_context()).flush_all()


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("photos")
    for i in range(FILES):
        (folder / f"{i}.jpg").write_bytes(encoded(".jpg", photo(seed=i)))
    return sorted(map(str, folder.iterdir()))


def train(photos: list[str], alpha: float) -> str:
    """Run an epoch of a small job (read, decode, resize, rotate); returns the line of its first call."""
    reader = ndd.readers.File(files=photos)
    for jpegs, _ in reader.next_epoch(batch_size=BATCH):
        images = ndd.decoders.image(jpegs)
        first = f"{HERE}:{sys._getframe().f_lineno + 1}"
        small = ndd.resize(images, size=[20, 24])
        np.asarray((ndd.rotate(small, angle=alpha) * 0.5).tensors[0])
    return first


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drop all kernels from memory, so that they are compiled or loaded from disk."""
    from ndd.kernels.cpu import runtime as cpu_runtime

    forget_plans(monkeypatch)
    monkeypatch.setattr(cpu_runtime, "_kernels", {})


def slices(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The slices of a trace file by category; checks what every viewer relies on."""
    told = json.loads(path.read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in told if e["name"] == "thread_name"}
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    ends: dict[int, list[float]] = defaultdict(list)
    assert {e["ph"] for e in told} == {"M", "X"}
    for e in told:
        assert e["pid"] == os.getpid()
        if e["ph"] == "X":
            assert e["cat"] in trace.CATEGORIES and e["dur"] >= 0 and e["ts"] >= 0
            found[e["cat"]].append({**e, "thread": names[e["tid"]]})
            # slices of a thread are in order, and lie inside of each other or apart
            open_ends = ends[e["tid"]]
            while open_ends and open_ends[-1] <= e["ts"]:
                open_ends.pop()
            assert all(e["ts"] + e["dur"] <= end for end in open_ends)
            open_ends.append(e["ts"] + e["dur"])
    return found


# -- what is recorded ----------------------------------------------------------------------------


@pytest.mark.usefixtures("fresh")
def test_a_trace_has_all_stages(photos: list[str], tmp_path: Path, mode: str) -> None:
    path = tmp_path / "trace.json"
    with ndd.profile(path) as p:
        first_line = train(photos, 10.0)
    assert not trace.active
    found = slices(path)
    assert set(found) == set(trace.CATEGORIES)
    calls = [e for e in found["call"] if e["name"] == "resize"]
    assert len(calls) == FILES // BATCH
    assert all(e["args"]["line"].endswith(first_line) for e in calls)
    assert {"decoders.image", "rotate", "mul"} <= {e["name"] for e in found["call"]}
    assert sum(e["args"]["samples"] for e in found["read"]) == FILES
    assert all(e["thread"].startswith("ndd-read-ahead") for e in found["read"])
    assert sum(e["args"]["samples"] for e in found["decode"]) == FILES
    assert any(e["thread"] == threading.current_thread().name for e in found["stall"])
    resized = [e for e in found["launch"] if e["name"].startswith("resize")]
    assert sum(e["args"]["samples"] for e in resized) == FILES
    assert any(first_line in line for line in resized[0]["args"]["lines"])
    compiled = {e["name"] for e in found["compile"]}
    assert any(name.startswith("rotate") for name in compiled)
    for e in found["launch"]:
        if e["name"].startswith(("resize", "rotate")):
            assert e["name"] in compiled and Path(e["args"]["source"]).stem == e["name"]
            assert f"Ops: {e['args']['ops']}\n" in Path(e["args"]["source"]).read_text()
    summary = p.report()
    assert summary.stages["decode"].samples == summary.stages["read"].samples == FILES
    assert "decode" in str(summary) and resized[0]["name"] in str(summary)


def test_groups_are_those_of_explain() -> None:
    with ndd.EvalMode.deferred:
        x = ndd.batch([np.zeros((9, 8, 3), np.uint8)] * 2, layout="HWC")
        y = ndd.rotate(ndd.resize(x, size=[20, 24]), angle=10.0) * 0.5
        with ndd.profile() as p:
            y.evaluate()
    groups = {e.group: e.name for e in p.events if e.category == "launch"}
    explained = ndd.explain(y)
    assert groups == dict(enumerate(explained.kernels)) and len(groups) == 2
    assert ndd.report().kernels.keys() == set(explained.kernels)


def test_a_single_call_is_recorded_on_its_short_way() -> None:
    x = ndd.batch([np.zeros((4, 4), np.float32)] * 5)
    with ndd.EvalMode.deferred:
        for _ in range(2):  # the second one takes the fast path (fusion/run/flat.py)
            with ndd.profile() as p:
                (x + 1.0).evaluate()
            (launch,) = (e for e in p.events if e.category == "launch")
            assert launch.samples == 5 and launch.group == 0 and launch.about is not None
            assert HERE in launch.about["lines"][0]


def test_stages_end_where_an_error_is_raised() -> None:
    class Balance:
        open = 0

        def begin(self, stage: trace.Stage) -> None:
            self.open += 1

        def end(self, stage: trace.Stage) -> None:
            self.open -= 1

    balance = Balance()
    trace.watch(balance)
    try:
        with pytest.raises(ValueError, match="crop"):
            ndd.crop(ndd.zeros(shape=[4, 4, 3], layout="HWC"), crop=(9, 9)).evaluate()
        with pytest.raises(Exception, match=r"decoders\.image"):
            broken = ndd.tensor(np.arange(9, dtype=np.uint8))
            ndd.decoders.image(broken).evaluate()
    finally:
        trace.unwatch(balance)
    assert balance.open == 0 and not trace.active


@pytest.mark.gpu
def test_launches_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NDD_GPU", "simulate")
    x = ndd.batch([np.zeros((4, 4), np.float32)] * 2, device="gpu").evaluate()
    with ndd.EvalMode.deferred, ndd.profile() as p:
        y = x + 7.03125  # a constant that no other test has copied there
        y.cpu().evaluate()
    launches = [(e.name, e.group, e.samples) for e in p.events if e.category == "launch"]
    # the constant is copied to the device first
    assert launches == [("copy", 0, 1), (ndd.explain(y).kernels[0], 0, 2), ("copy", 1, 2)]
    assert ("stall", "synchronize") in {(e.category, e.name) for e in p.events}


def test_a_profile_is_used_once_and_full_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "MAX_EVENTS", 3)
    with ndd.profile() as p:
        for _ in range(5):
            ndd.zeros(shape=[1])
    assert len(p.events) == 3 and p.dropped >= 2
    assert f"{p.dropped} stages were not recorded" in str(ndd.report())
    with pytest.raises(RuntimeError, match="make another one"), p:
        pass


# -- nobody watches ------------------------------------------------------------------------------


@pytest.mark.usefixtures("fresh")
def test_no_stage_is_made_when_nobody_watches(
    photos: list[str], monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("a stage was begun")

    monkeypatch.setattr(trace, "begin", forbidden)
    train(photos, 10.0)
    monkeypatch.setattr(profiling, "_last", None)
    text = str(ndd.report())
    assert (
        "profiling is off" in text and "ndd.profile(" in text and " 0 programs planned" not in text
    )


# -- sums ----------------------------------------------------------------------------------------


def stage(category: str, thread: int, start: int, end: int, **more: Any) -> StageEvent:
    facts = {"group": -1, "samples": 0, "run": 0, "about": None} | more
    return StageEvent(category, category, thread, start * 10**9, end * 10**9, **facts)


def test_time_belongs_to_the_innermost_stage() -> None:
    events = [
        stage("decode", 1, 2, 4), stage("launch", 1, 4, 5), stage("stall", 1, 1, 8),
        stage("call", 1, 0, 10), stage("decode", 2, 3, 6),
    ]  # fmt: skip
    seconds = [[(a // 10**9, b // 10**9) for a, b in own] for own in own_pieces(events)]
    assert seconds == [[(2, 4)], [(4, 5)], [(1, 2), (5, 8)], [(0, 1), (8, 10)], [(3, 6)]]
    assert union([(5, 7), (1, 2), (2, 3), (6, 9)]) == [(1, 3), (5, 9)]
    assert overlap([(0, 2), (4, 10)], [(1, 3), (5, 6), (9, 20)]) == [(1, 2), (5, 6), (9, 10)]


def test_a_summary_finds_the_bottleneck() -> None:
    kernel = {"ops": "flip", "lines": ["a.py:1"], "source": "/x/k.py"}
    events = [
        stage("call", 1, 0, 1),
        stage("stall", 1, 1, 9),
        # one run: four samples are decoded by two threads, then pass two kernels
        stage("decode", 2, 1, 5, samples=2, run=1, group=0),
        stage("decode", 3, 3, 7, samples=2, run=1, group=0),
        stage("launch", 2, 5, 6, samples=4, run=1, group=1, about=kernel),
        stage("launch", 2, 6, 7, samples=4, run=1, group=2, about=kernel),
        # a stage that waits is not a consumer
        stage("stall", 4, 0, 10),
    ]
    threads = {1: "MainThread", 2: "ndd-worker-1", 3: "ndd-worker-2", 4: "ndd-read-ahead-0"}
    s = summarise(events, threads, 10.0)
    decode, launch = s.stages["decode"], s.stages["launch"]
    assert (decode.count, decode.samples, decode.seconds, decode.busy, decode.threads) == (
        2,
        4,
        8,
        6,
        2,
    )
    assert decode.rate == 4 / 6
    assert (launch.samples, launch.busy, launch.rate) == (4, 2, 2)
    assert s.kernels["launch"].samples == 4 and s.kernels["launch"].groups == (1, 2)
    assert s.stalled == 8 and s.stall_share == 0.8
    assert s.waited_for == {"decode": 8, "launch": 2, "elsewhere": 2}
    assert s.bottleneck == "decode"
    text = str(s)
    assert "consumers waited 80.0% of their time" in text and "bottleneck: decode" in text
    assert "called at a.py:1" in text


def test_a_consumer_that_never_waits_is_the_bottleneck() -> None:
    events = [stage("call", 1, 0, 9), stage("decode", 2, 0, 9)]
    s = summarise(events, {1: "MainThread", 2: "ndd-worker-1"}, 10.0)
    assert s.bottleneck == "consumer" and s.stall_share == 0
    waiting = summarise([stage("stall", 1, 0, 5)], {1: "MainThread"}, 10.0)
    assert waiting.bottleneck == "elsewhere" and "a GPU's work" in str(waiting)


# -- NVTX ----------------------------------------------------------------------------------------

STUB = """
import threading

class Domain:
    def __init__(self, name):
        self.name, self.pushed, self.open = name, [], {}
    def get_category_id(self, name):
        return f"id of {name}"
    def get_event_attributes(self, message=None, color=None, category=None, payload=None):
        return message, category, payload
    def push_range(self, attributes):
        self.pushed.append(attributes)
        self.open.setdefault(threading.get_ident(), []).append(attributes)
    def pop_range(self):
        self.open[threading.get_ident()].pop()

domains = []

def get_domain(name):
    domains.append(Domain(name))
    return domains[-1]
"""


@pytest.mark.usefixtures("fresh")
def test_nvtx_ranges(photos: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stub = SimpleNamespace()
    exec(STUB, stub.__dict__)
    monkeypatch.setitem(sys.modules, "nvtx", stub)
    ndd.nvtx(True)
    try:
        ndd.nvtx(True)  # once is enough
        first_line = train(photos, 10.0)
    finally:
        ndd.nvtx(False)
    (domain,) = stub.domains
    assert domain.name == "ndd" and not any(domain.open.values())
    assert {c for _, c, _ in domain.pushed} == {f"id of {c}" for c in nvtx_ranges.CATEGORIES}
    launched = {(m, p) for m, c, p in domain.pushed if c == "id of launch"}
    assert any(m.startswith("resize_") and "__u8_" in m and p == 1 for m, p in launched)
    assert all(p == -1 for _, c, p in domain.pushed if c == "id of call")
    assert any(m.startswith("resize at ") and m.endswith(first_line) for m, _, _ in domain.pushed)
    count = len(domain.pushed)
    ndd.zeros(shape=[1]).evaluate()
    assert len(domain.pushed) == count and not trace.active


def test_nvtx_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "nvtx.py").write_text(STUB)
    code = """
        import ndd, nvtx
        ndd.zeros(shape=[1])
        print(nvtx.domains[0].pushed[0][0].split()[0])
    """
    assert run_python(code, NDD_NVTX="1", PYTHONPATH=str(tmp_path)) == "zeros"


def test_nvtx_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    with pytest.raises(RuntimeError, match=r"pip install .*\[gpu\]"):
        ndd.nvtx()
    assert not trace.active


# -- names of kernels ----------------------------------------------------------------------------


def test_names_are_shortened_in_the_middle() -> None:
    ops = ["resize", "crop", "flip", "brightness", "normalize"]
    assert shortened(ops, 40) == "resize_crop_flip_brightness_normalize"
    assert shortened(ops, 37) == "resize_crop_flip_brightness_normalize"
    assert shortened(ops, 36) == "resize_crop_and_2_more_normalize"
    assert shortened(ops, 1) == "resize_and_3_more_normalize"
    assert shortened(["a_long_name"], 3) == "a_long_name"
    assert shortened([], 3) == ""


@pytest.mark.parametrize("on_gpu", [False, True], ids=["cpu", "gpu"])
def test_long_chains_have_short_names(on_gpu: bool) -> None:
    with ndd.EvalMode.deferred:
        x = ndd.batch([np.zeros((4, 4, 3), np.uint8)] * 2, layout="HWC")
        y = ndd.flip(ndd.color_twist(ndd.brightness_contrast(x, contrast=2.0), hue=3.0))
        y = ndd.saturation(ndd.hue(ndd.crop(y, crop=(2, 2)), hue=1.0), saturation=0.3)
        y = ndd.crop_mirror_normalize(y, mean=[1.0, 2.0, 3.0])
        (step,) = PLANNER.make_plan(collect([y._node]), fuse=True).steps
    name = kernel_file(step.spec, on_gpu)
    ops, types, digest = name.split("__")
    assert len(name) <= MAX_NAME and name.isidentifier()
    assert ops == "brightness_contrast_and_5_more_crop_mirror_normalize"
    assert types == "u8f32_f32" and len(digest) == 8
