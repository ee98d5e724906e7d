"""The benchmark's machinery: rows, ratios, goals, tables and contestants' processes. No timing."""

import csv

from bench import goals, harness, loops, peers, photos, report
from bench.contest import Measure, Result, contest, seconds_per_image
from bench.harness import Row
from bench.peers import Contestant, Job


def rows(eager: float, oracle: float) -> list[Row]:
    work = "ResNet-50 eval, 2 threads, batch 64"
    return [
        Row.of(work, "ndd", [eager, 4 * eager, eager], busy=True),
        Row.of(work, "oracle dynamic", [oracle, 4 * oracle, oracle]),
        Row("peak memory, ResNet-50 eval", "ndd", 400.0, "MB"),
        Row("peak memory, ResNet-50 eval", "oracle dynamic", 300.0, "MB"),
    ]


def verdicts(found: list[Row]) -> dict[str, bool | None]:
    return {g.claim: g.met for g in goals.goals(found)}


def test_compare_takes_turns(monkeypatch):
    monkeypatch.setattr(harness, "MIN_SAMPLE_SECONDS", 0.0)
    monkeypatch.setattr(harness, "ATTEMPTS", 1)
    monkeypatch.setattr(harness, "SETTLE_SECONDS", 0.0)  # other tests keep the machine busy
    seen: list[str] = []
    runs = {name: lambda name=name: seen.append(name) for name in "abc"}
    found = harness.compare("order", runs, rounds=3)
    assert "".join(seen[-9:]) == "abcbcacab"
    assert [(r.name, len(r.samples)) for r in found] == [("a", 3), ("b", 3), ("c", 3)]


def test_goals_are_ratios_of_rounds():
    met = verdicts(rows(1e-3, 2.3e-3))
    assert met["1. eval ≥ 2.2× the oracle's dynamic mode"] is True
    assert met["1. eval ahead of every other peer"] is True
    assert met["4. peak memory of eval ≤ the oracle's"] is False
    assert met["2. train ≥ 2.0× the oracle's same program"] is None
    assert verdicts(rows(1e-3, 2.1e-3))["1. eval ≥ 2.2× the oracle's dynamic mode"] is False
    # the machine's drift affects both: the second round was four times as slow
    slow = [Row.of("w", "a", [1.0, 4.0]), Row.of("w", "b", [2.0, 8.0])]
    assert harness.ratio(*slow) == 2.0


def test_report(tmp_path):
    report.write(rows(1e-3, 2.3e-3), tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "| 1. eval ≥ 2.2× the oracle's dynamic mode | 2.30× oracle dynamic | met |" in text
    assert "| ndd | 1 ms * | 300% | 2.30 |" in text
    assert "| ndd | 400 MB | 0% |  |" in text
    table = list(csv.DictReader((tmp_path / "rows.csv").read_text().splitlines()))
    assert [r["name"] for r in table] == ["ndd", "oracle dynamic"] * 2
    assert (table[0]["value"], table[0]["unit"], table[0]["busy"]) == ("0.001", "s", "1")
    assert list(table[0]) == list(harness.COLUMNS)
    for suffix in ("png", "svg"):
        assert (tmp_path / f"resnet-50-eval-2-threads-batch-64.{suffix}").stat().st_size > 1000


def test_who_does_something_else_is_named():
    usual = {"shape": [2, 3, 4, 4], "dtype": "float32", "contiguous": True, "mean": 0.1,
             "deviation": 1.0}  # fmt: skip
    facts = {
        "ndd": usual, "oracle dynamic": usual, "bytes": {**usual, "dtype": "uint8"},
        "HWC": {**usual, "contiguous": False}, "dark": {**usual, "mean": -0.1}, "decoder": {},
    }  # fmt: skip
    odd = loops.disagreements(Result([], facts, {}, {}), mean=0.05, deviation=0.1)
    assert list(odd) == ["bytes", "HWC", "dark"]


def test_contestants_are_processes(tmp_path, monkeypatch):
    monkeypatch.setenv("NDD_BENCH_DIR", str(tmp_path))
    monkeypatch.setattr(harness, "SETTLE_SECONDS", 0.0)  # other tests keep the machine busy
    files = photos.squares(64, 4)
    assert photos.squares(64, 4) == files and len(files) == 4
    who = {"ndd": peers.DECODE["ndd"], "nobody": Contestant("nowhere", "decode")}
    result = contest(who, Job(files, batch=2), 2, Measure("decode", seconds_per_image(4)))
    assert [(r.name, len(r.samples)) for r in result.rows] == [("ndd", 2)]
    assert result.rows[0].value > 0 and result.memory["ndd"] > 50
    assert "nowhere" in result.missing["nobody"]
