"""`python -m ndd warm`: compiles the kernels of single ops into the cache, in a few processes.

A program runs on these while its fused kernel is compiled (fusion/run/tiers.py), so after this
command the first minute of a session is not spent in LLVM. Each op has its own file, as everywhere:
the smallest kernels take 0.04 s to compile, so a module for a whole family would save less than
that per kernel, of 0.24 s on average (206 kernels and helpers take 50 s of CPU time).
"""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any

import ndd

from ..core.schema import OPS
from ..kernels.common import own_process
from ..kernels.common.disk_cache import cache_dir
from ..kernels.cpu import compile_ahead, helpers, runtime
from ..tools.explain import counted
from .gallery import apply, is_image_op, photos

# What people do to images besides calling image ops. `x` are photos; `v` is one number per sample.
MORE = (
    "x + 1", "x - 1", "x * 2", "x * 0.5", "x / 255", "255 - x", "x + x", "x * v", "x + v",
    "ndd.cast(x, dtype=ndd.float32)", "ndd.cast(x, dtype=ndd.uint8)",
    "ndd.cast(x, dtype=ndd.float16)",
    "ndd.crop_mirror_normalize(x, mean=[1.0], std=[2.0], crop=[40, 40])",
    "ndd.crop_mirror_normalize(x, mean=[1.0], std=[2.0], crop=[40, 40], dtype=ndd.float16)",
    "ndd.crop_mirror_normalize(x, mean=[1.0], std=[2.0], output_layout='HWC')",
    "ndd.color_space_conversion(x, image_type='RGB', output_type='GRAY')",
    "ndd.rotate(x, angle=10.0, keep_size=True)", "ndd.rotate(x, angle=10.0)",
    "ndd.reductions.mean(x)", "ndd.reductions.mean(x, axes=[0, 1])", "ndd.reductions.sum(x)",
    "ndd.reductions.max(x)", "ndd.reductions.min(x)",
    "ndd.normalize(x)", "ndd.transpose(x, perm=[2, 0, 1])", "ndd.stack(x, x)",
    "ndd.random.uniform(range=[0.0, 1.0], batch_size=3)", "ndd.random.coin_flip(batch_size=3)",
    "ndd.random.normal(batch_size=3)",
)  # fmt: skip
HELPERS = ("jpeg_frames", *compile_ahead.USUAL)  # what reading JPEG files needs
DTYPES = ("uint8", "float32")
# Compiling keeps a core busy and takes 200 MB.
MAX_PROCESSES = 4


def warm(processes: int | None = None, names: list[str] | None = None) -> int:
    """Compile kernels of single ops, of all or of those named, and say what was done."""
    image_ops = sorted(op.name for op in OPS.values() if is_image_op(op))
    for name in names or ():
        if name not in image_ops:
            raise SystemExit(f"warm: {name!r} is no image op; known: {', '.join(image_ops)}")
    calls = names or [*image_ops, *MORE, *HELPERS]
    count = min(processes or MAX_PROCESSES, os.cpu_count() or 1, len(calls))
    start = time.perf_counter()
    workers = [_start(calls[k::count]) for k in range(count)]
    answers = [worker.communicate()[0].split() for worker in workers]
    if any(worker.returncode for worker in workers):
        return 1  # the worker has printed its error
    made, skipped = (sum(int(answer[k]) for answer in answers) for k in (0, 1))
    print(
        f"{cache_dir()}: compiled {counted(made, 'kernel')} for {counted(len(calls), 'call')} in "
        f"{time.perf_counter() - start:.1f} s ({count} at once; {skipped} combinations of call and "
        "type do not exist)"
    )
    return 0


def _start(calls: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        own_process.command("ndd.cli.warm", "main", *calls), text=True, stdout=subprocess.PIPE,
        env=own_process.environment(NDD_TIERS="0", NDD_COMPILE_AHEAD="0", NDD_NUM_THREADS="1"),
    )  # fmt: skip


def main(*calls: str) -> None:
    """What each process does: run calls; print how many kernels it made, and calls it skipped."""
    skipped = 0
    for dtype in DTYPES:
        x = ndd.cast(photos(), dtype=getattr(ndd, dtype)).evaluate()
        for call in calls:
            try:
                _run(call, x)
            except Exception:  # not every op takes every type
                skipped += 1
    print(runtime.compile_count + helpers.compile_count, skipped)


def _run(call: str, x: Any) -> None:
    if call in HELPERS:
        helpers.ensure([call], runtime.machine(), runtime.link)
    elif call in OPS:
        apply(call, x).evaluate()
    else:  # `eval` runs only calls from our own table
        eval(call, {"ndd": ndd, "x": x, "v": ndd.batch([1.0] * x.batch_size)}).evaluate()
