"""`python -m bench`: all benchmarks; `python -m bench pointwise` one of them."""

from __future__ import annotations

import sys

from . import constants, harness, overhead, pointwise, resample, tabulate

BENCHMARKS = {
    "pointwise": pointwise.main,
    "overhead": overhead.main,
    "resample": resample.main,
    "tabulate": tabulate.main,
    "constants": constants.main,
}


def main() -> None:
    chosen = sys.argv[1:] or list(BENCHMARKS)
    print(harness.machine())
    for name in chosen:
        BENCHMARKS[name]()


if __name__ == "__main__":
    main()
