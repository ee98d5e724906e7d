"""`python -m bench` runs all workloads, `python -m bench eval train` runs two of them.

`--quick` runs a short version. `python -m bench soak --minutes 10` watches the memory; `constants`
and `tabulate` are the measurements behind tuned constants. These three run only if named.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

# Set before anything loads OpenMP: idle threads must not spin while others are timed.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

from docs import bench as table

from . import (
    augment,
    boxes,
    calls,
    codecs,
    constants,
    debayer,
    dynamic,
    harness,
    histograms,
    isolate,
    large,
    loops,
    morphology,
    neighbourhoods,
    overhead,
    pointwise,
    record_files,
    reductions,
    report,
    resample,
    small,
    soak,
    sound,
    tabulate,
    transforms,
    video,
)
from .harness import Row
from .loops import Settings

WORKLOADS: dict[str, Callable[[Settings], list[Row]]] = {
    "decode": loops.decode,
    "eval": loops.evaluate,
    "train": loops.train,
    "ssl": loops.ssl,
    "stall": loops.stall,
    "first": loops.first_batch,
    "threads": loops.threads,
    "batches": loops.batches,
    "sizes": loops.sizes,
    "calls": lambda settings: calls.main(),
    "pointwise": lambda settings: pointwise.main(settings.rounds),
    "resample": lambda settings: resample.main(settings.rounds),
    "histograms": lambda settings: histograms.main(settings.rounds),
    "pictures": lambda settings: codecs.main(settings.rounds),
    "morphology": lambda settings: morphology.main(settings.rounds),
    "debayer": lambda settings: debayer.main(settings.rounds),
    "boxes": lambda settings: boxes.main(settings.rounds),
    "reductions": lambda settings: reductions.main(settings.rounds),
    "neighbourhoods": lambda settings: neighbourhoods.main(settings.rounds),
    "records": lambda settings: record_files.main(settings.rounds),
    "sound": lambda settings: sound.main(settings.rounds),
    "video": lambda settings: video.main(settings.rounds),
    "overhead": lambda settings: overhead.main(settings.rounds),
    "dynamic": lambda settings: dynamic.main(settings.rounds),
    "isolate": lambda settings: isolate.main(settings.rounds),
    "transforms": lambda settings: transforms.main(settings.rounds, settings.peers),
    "augment": lambda settings: augment.main(settings.rounds),
    "large": lambda settings: large.main(settings.rounds),
    "small": lambda settings: small.main(settings.rounds),
}
QUICK = ("decode", "eval", "train", "first", "calls")
TUNING = {"constants": constants.main, "tabulate": tabulate.main}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", help=", ".join([*WORKLOADS, "soak", *TUNING]))
    parser.add_argument("--quick", action="store_true", help="few peers, short rounds, no record")
    parser.add_argument("--rounds", type=int, help="7 (eval, train: twice as many), 3 with --quick")
    parser.add_argument("--peers", default="", help="parts of names: 'opencv,fused decode'")
    parser.add_argument("--minutes", type=float, default=10.0, help="duration of `soak`")
    parser.add_argument("--output", type=Path, default=Path("bench-report"), help="folder")
    parser.add_argument("--no-record", action="store_true", help="leave bench/results.csv alone")
    chosen = parser.parse_args(arguments)
    unknown = set(chosen.names) - {*WORKLOADS, *TUNING, "soak"}
    if unknown:
        parser.error(f"no such workload: {', '.join(sorted(unknown))}")
    only = tuple(filter(None, chosen.peers.split(",")))
    settings = Settings(chosen.rounds or (3 if chosen.quick else 7), chosen.quick, only)
    print(harness.machine())
    rows: list[Row] = []
    for name in chosen.names or (QUICK if chosen.quick else WORKLOADS):
        if name in TUNING:
            TUNING[name]()
            continue
        part = soak.main(chosen.minutes) if name == "soak" else WORKLOADS[name](settings)
        rows += part
        report.write(rows, chosen.output)  # each time, so that an interrupted run leaves a report
        if not (chosen.quick or chosen.no_record):
            harness.record(part)
            table.renew()
    if rows:
        print(f"\n{report.goal_table(rows)}\n\nreport, rows and plots are in {chosen.output}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
