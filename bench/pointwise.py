"""A pointwise chain: u8 (or f32) → ×a+b, clip, gamma, normalise → f16, on 64×224×224×3.

It also times a chain without transcendental functions against a copy that moves the same bytes.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

from collections.abc import Callable

import numpy as np

import ndd

from .harness import ROUNDS, Row, compare, optional, show

N, SHAPE = 64, (224, 224, 3)
A, B, GAMMA, MEAN, STD = 0.9 / 255, 0.05, 0.45, 0.45, 0.22


def numpy_chain(x: np.ndarray) -> np.ndarray:
    f = np.float32
    v = np.clip(x.astype(f) * f(A) + f(B), f(0), f(1)) ** f(GAMMA)
    return ((v - f(MEAN)) / f(STD)).astype(np.float16)


def library_chain(lib: object, batch: object) -> object:
    """The same program for us and for the oracle."""
    v = lib.cast(batch, dtype=lib.float32) * A + B
    v = lib.math.clamp(v, 0.0, 1.0) ** GAMMA
    return lib.cast((v - MEAN) / STD, dtype=lib.float16)


def contestants(images: np.ndarray, threads: int) -> dict[str, Callable[[], object]]:
    runs: dict[str, Callable[[], object]] = {}
    ours = ndd.batch(list(images), layout="HWC")
    context = ndd.EvalContext(num_threads=threads)

    def run_ours() -> object:
        with context:
            return library_chain(ndd, ours).evaluate()

    runs["ndd"] = run_ours
    dali = optional("nvidia.dali.experimental.dynamic")
    if dali is not None:
        theirs = dali.batch(list(images), layout="HWC")
        dali_context = dali.EvalContext(num_threads=threads)

        def run_dali() -> object:
            with dali_context:
                return library_chain(dali, theirs).evaluate()

        runs["oracle"] = run_dali
    runs["numpy"] = lambda: numpy_chain(images)
    numexpr = optional("numexpr")
    if numexpr is not None:
        numexpr.set_num_threads(threads)
        f = np.float32
        env = {"a": f(A), "b": f(B), "g": f(GAMMA), "m": f(MEAN), "s": f(STD), "o": f(1), "z": f(0)}

        def run_numexpr() -> object:
            v = numexpr.evaluate("x * a + b", {**env, "x": images.astype(np.float32)})
            text = "(where(v < z, z, where(v > o, o, v)) ** g - m) / s"
            return numexpr.evaluate(text, {**env, "v": v}).astype(np.float16)

        runs["numexpr"] = run_numexpr
    torch = optional("torch")
    if torch is not None:
        torch.set_num_threads(threads)
        data = torch.from_numpy(images)

        def eager(x: object) -> object:
            v = (x.float() * A + B).clamp(0, 1) ** GAMMA
            return ((v - MEAN) / STD).half()

        compiled = torch.compile(eager)
        runs["torch eager"] = lambda: eager(data)
        runs["torch.compile"] = lambda: compiled(data)
    return runs


def linear_chain(x: object) -> object:
    """Only multiply-adds and a clip, so that memory is the bottleneck."""
    v = x * 1.5 + 2.0
    v = ndd.math.clamp(v * 0.5 - 1.0, 0.0, 1.0)
    return (v - MEAN) * (1 / STD)


def copy_contestants() -> dict[str, Callable[[], object]]:
    source = np.random.default_rng(0).random((N, *SHAPE), np.float32)
    ours = ndd.batch(list(source), layout="HWC")
    context = ndd.EvalContext(num_threads=1)
    target = np.empty_like(source)

    def run_ours() -> object:
        with context:
            return linear_chain(ours).evaluate()

    return {"ndd": run_ours, "copy": lambda: np.copyto(target, source)}


def main(rounds: int = ROUNDS, threads: int = 1) -> list[Row]:
    rng = np.random.default_rng(0)
    bytes_ = rng.integers(0, 256, (N, *SHAPE), dtype=np.uint8)
    floats = bytes_.astype(np.float32)
    rows: list[Row] = []
    for name, images in (("u8", bytes_), ("f32", floats)):
        ours = np.asarray(library_chain(ndd, ndd.batch([images[0]])).tensors[0])
        assert np.allclose(
            ours.astype(np.float32), numpy_chain(images[0]).astype(np.float32), atol=4e-3
        )
        part = compare(
            f"pointwise chain from {name}, {threads} thread(s)",
            contestants(images, threads),
            rounds,
        )
        show(part, "oracle")
        rows += part
    part = compare("linear chain f32, 1 thread", copy_contestants(), rounds)
    show(part, "copy")
    return rows + part
