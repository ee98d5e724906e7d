"""All ops of exact geometry together: element types, empty samples, random arguments, modes, GPU.

Everything here only moves elements, so every comparison is of bits.
"""

from __future__ import annotations

import numpy as np
import pytest

import ndd

from .geometry_data import BITS, MOVES, TYPES, images, numbers
from .modes import same_everywhere
from .oracle import check, check_program, ndd_call, oracle_call


@pytest.mark.parametrize("op", [*MOVES, "stack", "cat", "index"])
def test_every_type(op):
    """Results equal the oracle's, or, for types it lacks, those of the unsigned integer of that size."""
    for dtype in TYPES:
        x = images(dtype)
        if op in ("stack", "cat"):
            check(op, x, x, layout="HWC", axis=1)
        elif op == "index":
            check_program(op, lambda lib, b: b.slice[::-1, -1:, 0], x, layout="HWC")
        else:
            layout, arguments = MOVES[op]
            known = dtype not in {
                "flip": ("float16", "bool"),
                "pad": ("float64",),
                "crop": ("bool",),
                "slice": ("bool",),
            }.get(op, ())
            if known:
                check(op, x, layout=layout, rtol=0, **arguments)
            elif dtype != "bool" or op == "flip":
                same_as_its_bits(op, x, layout, arguments)


def same_as_its_bits(op, x, layout, arguments):
    (got,) = ndd_call(op, x, layout=layout, **arguments)
    filled = "fill_value" in arguments
    if filled:  # compare with numbers that both types hold
        x = [np.round(a).clip(0, 255) for a in x]
        (got,) = ndd_call(op, x, layout=layout, **arguments)
        (want,) = oracle_call(op, [a.astype(np.uint8) for a in x], layout=layout, **arguments)
        assert all(np.array_equal(g, w) for g, w in zip(got.arrays, want.arrays, strict=True))
        return
    bits = BITS[x[0].itemsize]
    (want,) = oracle_call(op, [a.view(bits) for a in x], layout=layout, **arguments)
    assert (got.shapes, got.layout) == (want.shapes, want.layout)
    assert all(
        np.array_equal(g.view(bits), w) for g, w in zip(got.arrays, want.arrays, strict=True)
    )


@pytest.mark.parametrize("op", MOVES)
def test_bfloat16_moves_like_any_16_bits(op):
    layout, arguments = MOVES[op]
    arguments = {k: 0 if k == "fill_value" else v for k, v in arguments.items()}
    bits = images("uint16")
    b = ndd.reinterpret(ndd.batch(bits, layout=layout), dtype=ndd.bfloat16)
    got = getattr(ndd, op)(b, **arguments)
    (want,) = oracle_call(op, bits, layout=layout, **arguments)
    assert got.dtype is ndd.bfloat16 and got.shape == want.shapes and got.layout == want.layout
    got = ndd.reinterpret(got, dtype=ndd.uint16)
    assert all(np.array_equal(np.asarray(g), w) for g, w in zip(got, want.arrays, strict=True))


@pytest.mark.parametrize("op", [*MOVES, "stack", "cat", "index"])
def test_samples_without_elements(op):
    x = [numbers(s) for s in ((0, 4, 3), (3, 2, 3), (3, 0, 3), (1, 1, 3))]
    if op == "crop":
        check(op, x, layout="HWC", crop=[2, 3], out_of_bounds_policy="pad", fill_values=[1, 2, 3])
        check(op, x, layout="HWC", crop=[2, 3], out_of_bounds_policy="trim_to_shape")
    elif op in ("stack", "cat"):
        check(op, x, x, layout="HWC", axis=1)
    elif op == "index":
        check_program(op, lambda lib, b: b.slice[::-1, 1:], x, layout="HWC")
    else:
        check(op, x, layout="HWC", **MOVES[op][1])


# -- random programs -----------------------------------------------------------------------------


def test_random_arguments_agree_and_fail_alike():
    """We accept the same calls as the oracle, with the same results, and refuse the same calls."""
    rng = np.random.default_rng(23)
    pick = lambda *options: options[rng.integers(len(options))]
    accepted = refused = 0
    for _ in range(250):
        layout = pick("HWC", "CHW", None)
        extents = rng.integers(1, 7, 3)
        extents[0 if layout == "CHW" else 2] = 5  # 1 to 4 would each compile a kernel
        shape = tuple(extents.tolist())
        op = pick("crop", "slice", "pad", "reshape", "transpose", "expand_dims")
        if op == "crop":
            arguments = dict(
                crop=[int(v) for v in rng.integers(1, 7, pick(2, 2, 2, 3, 1))],
                crop_pos_x=pick(0.5, 0.25, 1.0, 1.5),
                out_of_bounds_policy=pick("error", "pad"),
            )
        elif op == "slice":
            k = pick(1, 2, 2, 3)
            arguments = dict(
                start=[int(v) for v in rng.integers(-1, 4, k)],
                end=[int(v) for v in rng.integers(0, 7, k)],
                axes=pick([0, 1], [2], [1, -1], [0, 3]),
                out_of_bounds_policy=pick("error", "pad", "trim_to_shape"),
            )
        elif op == "pad":
            arguments = dict(
                shape=[int(v) for v in rng.integers(-1, 8, pick(1, 2, 3))],
                align=int(rng.integers(0, 4)),
                axes=pick([0, 1], [2], [0, 1, 2]),
            )
        elif op == "reshape":
            arguments = dict(
                shape=[int(v) for v in rng.permutation([*shape, 1, -1])[: pick(2, 3, 4)]]
            )
        elif op == "transpose":
            arguments = dict(perm=[int(v) for v in rng.permutation(pick(3, 3, 3, 2))])
        else:
            arguments = dict(axes=[int(v) for v in rng.choice(5, pick(1, 2), replace=False)])
        x = numbers(shape)
        try:
            (want,) = oracle_call(op, x, layout=layout, **arguments)
        except (RuntimeError, ValueError, TypeError):
            refused += 1
            with pytest.raises((ValueError, TypeError), match=f"{op}: "):
                ndd_call(op, x, layout=layout, **arguments)
            continue
        accepted += 1
        (got,) = ndd_call(op, x, layout=layout, **arguments)
        where = (op, shape, layout, arguments)
        assert (got.shapes, got.layout, got.dtype) == (want.shapes, want.layout, want.dtype), where
        assert np.array_equal(got.arrays[0], want.arrays[0]), where
    assert accepted > 100 and refused > 30


# -- modes ---------------------------------------------------------------------------------------

PROGRAMS = {
    "flip": lambda x: ndd.flip(x, horizontal=ndd.batch([1, 0, 1, 0]), vertical=1),
    "crop": lambda x: ndd.crop(x, crop=[3, 3], out_of_bounds_policy="pad", fill_values=[1, 2, 3]),
    "slice": lambda x: ndd.slice(x, rel_start=[0.1, 0.2], rel_end=[0.9, 0.7], dtype=ndd.float32),
    "pad": lambda x: ndd.pad(x, fill_value=ndd.batch([1.0, 2.0, 3.0, 4.0])),
    "transpose": lambda x: ndd.transpose(x, perm=[2, 1, 0]),
    "stack": lambda x: ndd.stack(x, ndd.flip(x), axis=2),
    "cat": lambda x: ndd.cat(x, x.slice[::-1], x, axis=0),
    "reshape": lambda x: ndd.reshape(ndd.flip(x), shape=[-1]),
    "reinterpret": lambda x: ndd.reinterpret(ndd.cast(x, dtype=ndd.int16), dtype=ndd.uint8),
    "squeeze": lambda x: ndd.squeeze(ndd.expand_dims(ndd.flip(x), axes=[1]), axes=[1]),
    "index": lambda x: x.slice[::-1, : ndd.batch([1, 1, 3, 2]), 0],
    "full_like": lambda x: ndd.full_like(x, 3) + ndd.zeros_like(x),
    "chain": lambda x: ndd.crop(
        ndd.pad(
            ndd.flip(ndd.transpose(x, perm=[1, 0, 2], transpose_layout=False), vertical=1),
            axis_names="HW",
            align=4,
        ),
        crop=[3, 2],
    ).slice[1:, ::-1],
    "window of cat": lambda x: ndd.slice(
        ndd.cat(x, ndd.pad(x, axes=[0], align=3, fill_value=9), axis=0),
        start=[-1, 1],
        shape=[4, 9],
        out_of_bounds_policy="pad",
        fill_values=[5],
    ),
    "samples": lambda x: ndd.flip(x).select([3, 0]) if isinstance(x, ndd.Batch) else x,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_bits_and_metadata_in_all_modes(name):
    program = PROGRAMS[name]
    x = ndd.batch(images(), layout="HWC")
    first = same_everywhere(lambda: program(x))
    with ndd.EvalMode.deferred:
        pending = program(x)
        assert (pending.shape, str(pending.dtype), pending.layout) == (
            first[0].shapes,
            first[0].dtype,
            first[0].layout,
        )
    arrays = [a.copy() for a in images()]
    wrapped = same_everywhere(lambda: program(ndd.as_batch(arrays, layout="HWC")))
    assert all(map(np.array_equal, first[0].arrays, wrapped[0].arrays))


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - {"samples"}))
def test_the_simulated_gpu_gives_the_same_bits(name, monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")
    x = ndd.batch(images(), layout="HWC")
    want = PROGRAMS[name](x)
    got = PROGRAMS[name](x.gpu())
    assert got.device.device_type == "gpu" and (got.shape, got.layout) == (want.shape, want.layout)
    for g, w in zip(got.cpu(), want, strict=True):
        assert np.array_equal(np.asarray(g), np.asarray(w))
