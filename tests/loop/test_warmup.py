"""Kernels compiled in advance by `ndd.warmup`, and `ndd.capture`."""

from __future__ import annotations

import ndd
from tests.helpers import run_python


def test_warmup_compiles_what_a_loop_needs(tmp_path) -> None:
    out = run_python(
        """
        import ndd
        from ndd.kernels.cpu import runtime as cpu_runtime
        def augment(x):
            y = ndd.flip(ndd.resize(x, size=[6, 7])) * ndd.random.uniform(range=[0.5, 2.0])
            return {"small": y, "all": [ndd.cast(x, dtype=ndd.float32)]}
        rng = ndd.random.get_default_rng()
        before = rng.get_state()
        image = ndd.zeros(shape=[8, 9, 3], dtype=ndd.uint8, layout="HWC").evaluate()
        ndd.EvalMode.deferred.__enter__()  # eager grouping depends on time
        made = ndd.warmup(augment, image)
        count = cpu_runtime.compile_count
        large = ndd.zeros(shape=[80, 70, 3], dtype=ndd.uint8, layout="HWC").evaluate()
        result = augment(large)
        for value in (result["small"], *result["all"]):
            value.evaluate()
        print(made > 0, rng.get_state() != before, cpu_runtime.compile_count - count)
        """,
        NDD_CACHE_DIR=str(tmp_path),
    )
    assert out == "True True 0"


def test_capture_is_accepted() -> None:
    value = object()
    assert ndd.capture.invariant(value) is value
