"""A few hundred interrupts of each program; `NDD_FAULTS=20` makes twenty times as many.

`make fuzz` also interrupts programs with processes of their own, and videos.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ndd.kernels.common import background
from tests.faults.child import counts_of
from tests.helpers import run_python

TIMES = int(os.environ.get("NDD_FAULTS", "1"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "what", ["decode", "python_decode", "eager", "pointwise", "reader", "opened_and_left"]
)
def test_a_program_goes_on_after_interrupts(what: str) -> None:
    found = counts_of("interrupts", what, 1, 150 * TIMES, 120 * TIMES, NDD_NUM_THREADS="4")
    assert found["interrupts"] >= 150 * TIMES


def test_a_thread_that_cannot_run_does_not_hang_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without memory, a new thread may end before it calls anything."""
    monkeypatch.setattr(background._thread, "start_new_thread", lambda function, arguments: None)
    with pytest.raises(MemoryError, match="no memory for another thread"):
        background.uninterrupted(int, "3")


def test_an_exit_does_not_wait_for_calls_that_have_ended() -> None:
    """The traceback of an error keeps its call alive until the process is gone."""
    told = run_python(
        """
        import atexit, time
        atexit.register(lambda: print(time.monotonic() - begin < background.EXIT_COMPILE_SECONDS / 2))
        from ndd.kernels.common import background
        try:
            background.uninterrupted(int, "three")
        except ValueError as error:
            kept = error.__traceback__
        assert background._calls
        begin = time.monotonic()
        """
    )
    assert told == "True"


@pytest.mark.slow
@pytest.mark.gpu
def test_compiling_for_a_gpu_is_not_cut_in_two(tmp_path: Path) -> None:
    """Triton and its import go on in another thread; whoever asks again gets what they have made."""
    pytest.importorskip("triton")
    told = run_python(
        """
        import signal
        from ndd.kernels.gpu import kernel, triton_cache
        from ndd.kernels.gpu.runtime import _gather
        from ndd.kernels.ir import dtypes as dt
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        interrupts, sizes = 0, []
        for rank in (1, 2, 3):
            while len(sizes) < rank:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.02)
                    triton_cache.import_triton()
                    from triton.backends.compiler import GPUTarget
                    made = kernel.get_kernel(_gather(dt.uint8, rank))
                    variant = kernel.Variant("ragged", False, False)
                    found = made.compile(variant, GPUTarget("cuda", 80, 32), 128)
                    sizes.append(len(found.asm["cubin"]))
                except KeyboardInterrupt:
                    interrupts += 1
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
        assert kernel.compile_count == 3, kernel.compile_count
        assert triton_cache.interpreting.acquire(timeout=5) and min(sizes) > 1000
        print(interrupts > 5)
        """,
        NDD_CACHE_DIR=str(tmp_path),
    )
    assert told == "True"
