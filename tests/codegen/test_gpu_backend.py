"""Generated Triton kernels are bit-equal to the CPU kernels in the interpreter, and they compile."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from ndd.kernels.cpu import runtime as cpu_runtime
from ndd.kernels.cpu.cores import columns_of
from ndd.kernels.gpu import cubin, simulated
from ndd.kernels.gpu import kernel as gpu_kernel
from ndd.kernels.gpu import runtime as gpu_runtime
from ndd.kernels.gpu.kernel import Launch, Variant
from ndd.kernels.gpu.runtime import GpuRuntime
from ndd.kernels.gpu.streams import Stream
from ndd.kernels.ir import dtypes as dt
from ndd.kernels.ir import expr as ex
from ndd.kernels.ir.dtypes import NUMERIC, DType
from ndd.kernels.ir.expr import Expr
from ndd.kernels.ir.spec import Access, Index, KernelSpec

pytest.importorskip("triton")
pytestmark = pytest.mark.gpu

FLOATS = (dt.float32, dt.float64)
INTEGERS = tuple(t for t in NUMERIC if t.is_integer)
SMALL_BLOCK = 128


@pytest.fixture(autouse=True, scope="module")
def environment(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NDD_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("NDD_GPU", "simulate")
        yield


# -- one table for both back-ends ------------------------------------------------------------------


@dataclass
class Sample:
    """Operands of one row; strides and first offsets are in elements."""

    extents: tuple[int, ...]
    loads: list[tuple[Any, tuple[int, ...]]]
    store_strides: list[tuple[int, ...]]
    store_sizes: list[int]
    first: dict[int, int] = field(default_factory=dict)
    windows: list[dict[int, tuple[int, int]]] = field(default_factory=list)
    indices: list[tuple[int, int]] = field(default_factory=list)


def make_table(spec: KernelSpec, samples: list[Sample], outputs: list[list[Any]]) -> Any:
    table = np.empty((len(samples), len(spec.columns)), np.int64)
    for row, sample, outs in zip(table, samples, outputs):
        for column, k in spec.columns.items():
            kind, *at = column
            if kind == "n":
                row[k] = sample.extents[at[0]]
            elif kind == "out":
                row[k] = outs[at[0]].ctypes.data
            elif kind == "in":
                row[k] = sample.loads[at[0]][0].ctypes.data
            elif kind == "out_stride":
                row[k] = sample.store_strides[at[0]][at[1]]
            elif kind == "in_stride":
                row[k] = sample.loads[at[0]][1][at[1]]
            elif kind == "in_first":
                row[k] = sample.first.get(at[0], 0)
            elif kind in ("lo", "hi"):
                row[k] = sample.windows[at[0]][at[1]][kind == "hi"]
            else:
                row[k] = sample.indices[at[0]][kind == "offset"]
    return table


def aligned_empty(nbytes: int, shift: int = 0) -> Any:
    block = np.full(nbytes + 80, 0xA5, np.uint8)
    start = -block.ctypes.data % 64 + shift
    return block[start : start + nbytes]


def make_outputs(spec: KernelSpec, samples: list[Sample], shift: int = 0) -> list[list[Any]]:
    return [
        [
            aligned_empty(n * a.dtype.bytes, shift).view(a.dtype.np)
            for n, a in zip(s.store_sizes, spec.stores)
        ]
        for s in samples
    ]


def run_cpu(spec: KernelSpec, samples: list[Sample]) -> list[list[Any]]:
    outputs = make_outputs(spec, samples)
    own = np.zeros((len(samples), len(columns_of(spec)) - len(spec.columns)), np.int64)
    table = np.hstack([make_table(spec, samples, outputs), own])
    cpu_runtime.get_kernel(spec).run(table.ctypes.data, 0, len(table))
    return outputs


def run_gpu(spec: KernelSpec, samples: list[Sample]) -> list[list[Any]]:
    outputs = make_outputs(spec, samples)
    runtime = GpuRuntime(0, Stream())
    runtime.launch(runtime.get_kernel(spec), spec, make_table(spec, samples, outputs), [])
    runtime.synchronize()
    return outputs


def run_variant(spec: KernelSpec, samples: list[Sample], variant: Variant) -> list[list[Any]]:
    """A given variant with a small tile, so that whole and partial tiles occur."""
    outputs = make_outputs(spec, samples)
    table = make_table(spec, samples, outputs)
    sizes = table[:, [spec.columns["n", a] for a in spec.loop_axes]].prod(axis=1)
    largest, tiles, per_row = int(sizes.max()), None, 1
    if variant.grid == "ragged":
        tiles = gpu_kernel.tile_map(sizes, SMALL_BLOCK)
        programs = len(tiles)
    elif variant.grid == "packed":
        programs = -(-len(table) * largest // SMALL_BLOCK)
    else:
        per_row = -(-largest // SMALL_BLOCK)
        programs = len(table) * per_row
    launch = Launch(variant, SMALL_BLOCK, programs, largest, per_row, tiles)
    kernel = gpu_kernel.get_kernel(spec)
    simulated.interpret(kernel.interpreted, launch, table)
    return outputs


def words(values: Any) -> Any:
    return values.view(f"u{values.dtype.itemsize}")


def assert_same(
    spec: KernelSpec, want: list[list[Any]], got: list[list[Any]], ulp: int = 0
) -> None:
    for s, (wants, gots) in enumerate(zip(want, got, strict=True)):
        for k, (w, g) in enumerate(zip(wants, gots, strict=True)):
            same = words(w) == words(g)
            if spec.stores[k].dtype in (dt.float16, *FLOATS):
                same |= np.isnan(w) & np.isnan(g)
            elif spec.stores[k].dtype is dt.bfloat16:
                same |= ((w & 0x7FFF) > 0x7F80) & ((g & 0x7FFF) > 0x7F80)
            if ulp and spec.stores[k].dtype in FLOATS:
                distance = words(w).astype(np.int64) - words(g).astype(np.int64)
                same |= np.abs(distance) <= ulp
            where = np.flatnonzero(~same)
            assert not len(where), (
                f"sample {s}, store {k} ({spec.values[k]}): {len(where)} of {len(w)} differ; "
                f"first at {where[0]}: cpu {w[where[0]]!r}, gpu {g[where[0]]!r}"
            )


def check(spec: KernelSpec, samples: list[Sample], variants: Any = None, ulp: int = 0) -> Any:
    want = run_cpu(spec, samples)
    assert_same(spec, want, run_gpu(spec, samples), ulp)
    if variants is None:
        grids = ["ragged"]
        if len({s.extents for s in samples}) == 1:
            grids += ["packed", "uniform"]
        variants = [Variant(g, wide, False) for g in grids for wide in (False, True)]
    for variant in variants:
        if variant.grid == "packed" or spec.loop_axes:
            assert_same(spec, want, run_variant(spec, samples, variant), ulp)
    return want


def load(slot: int, dtype: DType, *guard: Expr) -> Expr:
    return Expr("load", dtype, guard, slot)


def window(slot: int) -> Expr:
    return Expr("window", dt.bool_, (), slot)


def index(slot: int) -> Expr:
    return Expr("index", dt.int32, (), slot)


def flat_spec(name: str, ins: list[DType], values: list[Expr]) -> KernelSpec:
    loads = tuple(Access(t, (1,)) for t in ins)
    stores = tuple(Access(v.dtype, (1,)) for v in values)
    return KernelSpec((name,), (None,), loads, stores, tuple(values))


def flat_samples(spec: KernelSpec, *batches: tuple[Any, ...]) -> list[Sample]:
    return [
        Sample(
            (max(map(len, arrays)),),
            [(a, (1,)) for a in arrays],
            [(1,)] * len(spec.stores),
            [max(map(len, arrays))] * len(spec.stores),
        )
        for arrays in batches
    ]


# -- values that break things ----------------------------------------------------------------------


def edge_values(dtype: DType) -> Any:
    rng = np.random.default_rng(dtype.bits)
    if dtype is dt.bool_:
        return np.array([False, True, True, False])
    if dtype is dt.bfloat16:
        return (words(edge_values(dt.float32)) >> 16).astype(np.uint16)
    if dtype.is_integer:
        lo, hi = ex.limits(dtype)
        near = {lo, lo + 1, hi, hi - 1, hi // 2, hi // 2 + 1, 0, 1, 2, 3, 7, 127, 128, 200, 255}
        near |= {-1, -2, -128, -129, 256, 32767, 32768, 65535, 65536, 2**24 + 1, 2**31 - 1, 2**31}
        near |= {2**53 + 1, 2**62 + 2**38 + 1, 2**63 - 2**38 - 1}
        fixed = np.array(sorted(v for v in near if lo <= v <= hi), dtype.np)
        return np.concatenate([fixed, rng.integers(lo, hi, 40, dtype.np, endpoint=True)])
    with np.errstate(all="ignore"):
        info = np.finfo(dtype.np)
        near = [0.0, 0.25, 0.5, 1.0, 1.5, 2.5, 3.7, 0.1, 126.5, 127.5, 128.0, 254.5, 255.5, 1e-3]
        near += [32767.5, 65534.5, 65535.5, 2.0**23 - 0.5, 2.0**23 + 1, 2.0**24, 2.0**31, 2.0**32]
        near += [2.0**31 - 1, 2.0**32 - 1, 2.0**32 - 0.5, 2.0**52 - 0.5, 2.0**63, 2.0**64, 3e4]
        near += [float(info.max), float(info.tiny), float(info.smallest_subnormal), np.inf]
        near += [float(np.nextafter(dtype.np.type(v), dtype.np.type(0))) for v in (0.5, 1.5, 2.5)]
        near += (rng.standard_normal(60) * 10.0 ** rng.integers(-6, 7, 60)).tolist()
        both = np.array([s * v for v in near for s in (1, -1)] + [np.nan])
        return both.astype(dtype.np)


def pairs(dtype: DType) -> tuple[Any, Any]:
    """Every edge value against a choice of edge values."""
    a = edge_values(dtype)
    b = np.concatenate([a[::3], a[-3:]])
    x, y = np.meshgrid(a, b)
    return np.ascontiguousarray(x.ravel()), np.ascontiguousarray(y.ravel())


# -- operations ------------------------------------------------------------------------------------


def binary(op: str, a: Expr, b: Expr) -> Expr:
    return Expr(op, dt.bool_ if op in ("lt", "le", "gt", "ge", "eq", "ne") else a.dtype, (a, b))


COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_operations(dtype):
    x, y, amount = load(0, dtype), load(1, dtype), load(2, dtype)
    lo, hi = ex.limits(dtype)
    values = [binary(op, x, y) for op in ("add", "sub", "mul", "and", "or", "xor", *COMPARE)]
    values += [x << amount, x >> amount, -x, ~x, ex.select(x < y, x, y), ex.select(x < y, hi, x)]
    values += [x + hi, x + lo, lo - x, x ^ hi, x < hi, x >= lo, x >> 3, x << (dtype.bits - 1)]
    values += [ex.const(hi, dtype) + ex.const(1, dtype), ex.select(x < y, lo, ex.const(hi, dtype))]
    a, b = pairs(dtype)
    amounts = (np.arange(len(a)) % dtype.bits).astype(dtype.np)
    ins = [dtype] * 3
    arrays = [a, b, amounts]
    if dtype.kind is DType.Kind.unsigned:
        divisor = load(3, dtype)
        values += [
            binary("udiv", x, divisor),
            binary("urem", x, divisor),
            binary("udiv", x, ex.const(3, dtype)),
        ]
        ins.append(dtype)
        arrays.append(np.maximum(b, dtype.np.type(1)))
    spec = flat_spec(f"int_{dtype}", ins, values)
    check(spec, flat_samples(spec, tuple(arrays)), [Variant("uniform", False, False)])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_operations(dtype):
    x, y = load(0, dtype), load(1, dtype)
    values = [binary(op, x, y) for op in ("add", "sub", "mul", "div", "fmod", *COMPARE)]
    values += [ex.unary(op, x) for op in ("floor", "ceil", "trunc", "rint", "abs", "sqrt", "neg")]
    values += [ex.select(x < y, x, y), ex.minimum(x, y), ex.maximum(x, 0.5), ex.round_half_away(x)]
    values += [x * -0.0, x + float("inf"), x * float("nan"), x * 0.1, 1.0 / x, x / 3.0, x - x * y]
    values += [ex.select(x < y, ex.const(-0.0, dtype), ex.const(float("-inf"), dtype))]
    spec = flat_spec(f"float_{dtype}", [dtype] * 2, values)
    check(spec, flat_samples(spec, pairs(dtype)), [Variant("uniform", False, False)])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_fmod_is_exact_for_random_bits(dtype):
    word = f"u{dtype.bytes}"
    rng = np.random.default_rng(5)
    a, b = (rng.integers(0, 1 << (8 * dtype.bytes), 4000, word).view(dtype.np) for _ in range(2))
    spec = flat_spec(f"fmod_{dtype}", [dtype] * 2, [binary("fmod", load(0, dtype), load(1, dtype))])
    got = run_gpu(spec, flat_samples(spec, (a, b)))
    with np.errstate(all="ignore"):
        assert_same(spec, [[np.fmod(a, b)]], got)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_fmod_by_one_division(dtype):
    """No quotient is large, but many are whole numbers, or nearly; divisors may be denormal."""
    rng = np.random.default_rng(6)
    b = np.ldexp(rng.uniform(1, 2, 3000), rng.integers(-20, 20, 3000)).astype(dtype.np)
    b[::10] = rng.integers(1, 50, 300) * np.finfo(dtype.np).smallest_subnormal
    a = rng.integers(0, 1 << 21, 3000).astype(dtype.np) * b
    a = np.concatenate(
        [a, np.nextafter(a, dtype.np.type(0)), np.nextafter(a, dtype.np.type(np.inf)), -a]
    )
    b = np.concatenate([b, -b, b, b])
    spec = flat_spec(f"fmod_{dtype}", [dtype] * 2, [binary("fmod", load(0, dtype), load(1, dtype))])
    assert_same(spec, [[np.fmod(a, b)]], run_gpu(spec, flat_samples(spec, (a, b))))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_transcendental_functions(dtype):
    x = load(0, dtype)
    spec = flat_spec(
        f"libm_{dtype}", [dtype], [ex.unary(op, x) for op in ("exp", "log", "sin", "cos")]
    )
    rng = np.random.default_rng(3)
    a = np.concatenate(
        [rng.uniform(-50, 50, 2000), rng.uniform(0, 1, 500), [0.0, 1.0, np.inf, np.nan]]
    )
    check(spec, flat_samples(spec, (a.astype(dtype.np),)), [], ulp=4)


def test_bool_operations():
    x, y = load(0, dt.bool_), load(1, dt.bool_)
    values = [binary(op, x, y) for op in ("and", "or", "xor", "eq", "ne")]
    values += [
        ~x,
        x & True,
        x ^ True,
        ex.select(x, y, True),
        ex.select(x, ex.const(False, dt.bool_), y),
    ]
    spec = flat_spec("bools", [dt.bool_] * 2, values)
    # any byte but 0 is true, and true is stored as 1
    a, b = np.array([0, 1, 2, 255] * 4, np.uint8), np.repeat(np.array([0, 1, 128, 3], np.uint8), 4)
    want = check(spec, flat_samples(spec, (a, b)))
    assert set(np.concatenate(want[0]).view(np.uint8).tolist()) <= {0, 1}


@pytest.mark.parametrize("source", NUMERIC, ids=str)
def test_conversions_from(source):
    x = load(0, source)
    targets = [t for t in NUMERIC if t is not source]
    roundings = ("away", "trunc", "even") if source.is_float else ("away",)
    values = [ex.convert(x, t, r) for t in targets for r in roundings]
    if source.is_integer or source is dt.bool_:
        values += [ex.cast(x, t) for t in targets]
    spec = flat_spec(f"convert_{source}", [source], values)
    check(spec, flat_samples(spec, (edge_values(source),)), [])


@pytest.mark.parametrize("source", FLOATS, ids=str)
@pytest.mark.parametrize("target", INTEGERS, ids=str)
def test_conversion_saturates_like_python(source, target):
    x = load(0, source)
    spec = flat_spec(f"saturate_{source}_{target}", [source], [ex.convert(x, target, "trunc")])
    values = edge_values(source)
    values = values[~np.isnan(values)]
    lo, hi = ex.limits(target)
    want = [hi if v == np.inf else lo if v == -np.inf else min(max(int(v), lo), hi) for v in values]
    got = check(spec, flat_samples(spec, (values,)), [])
    assert got[0][0].tolist() == want


def test_constants_of_all_types():
    x = load(0, dt.bool_)
    values = []
    for t in NUMERIC:
        lo, hi = (0.1, -2.5) if t.is_float else ex.limits(t)
        values.append(
            ex.select(x, ex.cast(ex.const(hi, dt.float32 if t.is_float else t), t), ex.const(lo, t))
        )
    spec = flat_spec("constants", [dt.bool_], values)
    check(spec, flat_samples(spec, (np.array([True, False] * 5),)))


def test_bits_between_types():
    names = ["f32 u32", "f64 i64", "f16 u16", "bf16 u16", "i8 u8", "u64 f64", "u16 f16", "i32 f32"]
    kinds = [tuple(map(DType.parse, n.split())) for n in names]
    ins = [a for a, _ in kinds]
    values = [ex.bits(load(k, a), b) for k, (a, b) in enumerate(kinds)]
    spec = flat_spec("bits", ins, values)
    arrays = tuple(np.resize(edge_values(t), 100) for t in ins)
    check(spec, flat_samples(spec, arrays))


# -- shapes and grids ------------------------------------------------------------------------------


def scale_spec() -> KernelSpec:
    value = ex.convert(ex.cast(load(0, dt.uint8), dt.float32) * load(1, dt.float32) + 3.0, dt.uint8)
    accesses = (Access(dt.uint8, (1,)), Access(dt.float32, (0,)))
    return KernelSpec(("scale",), (None,), accesses, (Access(dt.uint8, (1,)),), (value,))


def scale_samples(sizes: list[int], shift: int = 0) -> list[Sample]:
    rng = np.random.default_rng(1)
    samples = []
    for i, n in enumerate(sizes):
        pixels = aligned_empty(n, shift)
        pixels[:] = rng.integers(0, 256, n)
        factor = np.array([0.5 + i], np.float32)
        samples.append(Sample((n,), [(pixels, (1,)), (factor, (0,))], [(1,)], [n]))
    return samples


@pytest.mark.parametrize(
    "sizes", [[1000], [3000, 3, 0, 128, 129], [300] * 5, [128] * 3, [1] * 9], ids=str
)
def test_flat_in_every_grid(sizes):
    spec, samples = scale_spec(), scale_samples(sizes)
    grids = ["ragged"] if len(set(sizes)) > 1 else ["ragged", "uniform", "packed"]
    variants = [
        Variant(g, w, a) for g, w, a in itertools.product(grids, (False, True), (False, True))
    ]
    check(spec, samples, variants)


def test_only_real_alignment_is_claimed():
    spec = scale_spec()
    kernel = gpu_kernel.get_kernel(spec)
    for shift in (0, 16, 1, 8):
        samples = scale_samples([5000] * 2, shift)
        table = make_table(spec, samples, make_outputs(spec, samples))
        assert kernel.plan(table, 1024).variant.aligned == (shift % 16 == 0)


def test_wide_offsets_are_noticed():
    spec = image_spec()
    kernel = gpu_kernel.get_kernel(spec)
    samples = [image_sample(8, 9)]
    table = make_table(spec, samples, make_outputs(spec, samples))
    assert not kernel.plan(table, 1024).variant.wide
    table[:, spec.columns["in_stride", 0, 0]] = 1 << 29
    assert kernel.plan(table, 1024).variant.wide


def test_a_plan_is_remembered_by_what_it_depends_on():
    """Tables that differ in addresses only share a plan; sizes, strides and alignment make another."""
    kernel = gpu_kernel.get_kernel(image_spec())
    samples = [image_sample(8, 9), image_sample(30, 40)]
    table = make_table(kernel.spec, samples, make_outputs(kernel.spec, samples))
    first = kernel.plan(table, 128)
    moved = table.copy()
    moved[:, kernel.spec.columns["in", 0]] += 1
    assert kernel.plan(moved, 128) is first
    for column, by in ((("n", 1), 100), (("in_stride", 0, 0), 1 << 29)):
        changed = table.copy()
        changed[0, kernel.spec.columns[column]] += by
        assert kernel.plan(changed, 128)[:-1] != first[:-1], column
    assert kernel.plan(table[:1], 128)[:-1] != first[:-1]
    assert kernel.plan(table, 64)[:-1] != first[:-1]


def test_nothing_to_do_is_no_launch():
    spec = scale_spec()
    before = gpu_runtime.launch_count
    for samples in ([], scale_samples([0, 0])):
        run_gpu(spec, samples)
    assert gpu_runtime.launch_count == before


def image_spec() -> KernelSpec:
    """Flip and crop (strides of the table), 3 channels unrolled, normalised, stored as CHW."""
    value = (ex.cast(load(0, dt.uint8), dt.float32) - load(1, dt.float32)) * load(2, dt.float32)
    loads = (
        Access(dt.uint8, (None, None, 1)),
        Access(dt.float32, (0, 0, 1)),
        Access(dt.float32, (0, 0, 1)),
    )
    stores = (Access(dt.float16, (None, 1, None)),)
    return KernelSpec(
        ("crop", "normalize"), (None, None, 3), loads, stores, (ex.cast(value, dt.float16),)
    )


def image_sample(h: int, w: int) -> Sample:
    rng = np.random.default_rng(h * 1000 + w)
    image = rng.integers(0, 256, (h + 3, w + 2, 3)).astype(np.uint8)
    mean, scale = (
        rng.uniform(0, 255, 3).astype(np.float32),
        rng.uniform(0, 0.1, 3).astype(np.float32),
    )
    flipped = image[1 : 1 + h, 1 : 1 + w][:, ::-1]
    loads = [(flipped, (image.shape[1] * 3, -3, 1)), (mean, (0, 0, 1)), (scale, (0, 0, 1))]
    return Sample((h, w, 3), loads, [(w, 1, h * w)], [h * w * 3])


@pytest.mark.parametrize("shapes", [[(17, 31), (5, 3), (1, 1), (0, 4)], [(12, 13)] * 3], ids=str)
def test_strided_images(shapes):
    spec = image_spec()
    samples = [image_sample(*s) for s in shapes]
    want = check(spec, samples)
    flipped, mean, scale = (a for a, _ in samples[0].loads)
    reference = ((flipped.astype(np.float32) - mean) * scale).astype(np.float16)
    np.testing.assert_array_equal(
        want[0][0].reshape(3, *flipped.shape[:2]), reference.transpose(2, 0, 1)
    )


def pad_spec() -> KernelSpec:
    """A window of the input, elsewhere a fill value that has a guard itself; positions are added."""
    w0, w1 = window(0), window(1)
    value = ex.select(w0, load(0, dt.int16, w0), load(1, dt.int16))
    other = ex.select(w1, load(2, dt.float32, w1), ex.const(-1.0, dt.float32))
    place = index(0) * 1000 + index(1)
    mixed = ex.select(w0 & w1, index(2), place + index(3))
    return KernelSpec(
        ("pad",), (None, None, 2),
        (Access(dt.int16, (None, None, 1), guarded=True), Access(dt.int16, (0, 0, 1)),
         Access(dt.float32, (0, 0, 0), guarded=True)),
        tuple(Access(t, (None, 2, 1)) for t in (dt.int16, dt.float32, dt.int32)),
        (value, other, mixed), windows=((0, 1), (1, 2)),
        indices=(Index(0, True), Index(1, False), Index(2, False), Index(None, False)),
    )  # fmt: skip


def pad_sample(h: int, w: int, top: int, left: int, ih: int, iw: int) -> Sample:
    far = 2**62
    image = (
        np.arange(ih * iw * 2, dtype=np.int16).reshape(ih, iw, 2)
        if ih * iw
        else np.zeros(2, np.int16)
    )
    fill, lone = np.array([-7, -9], np.int16), np.array([2.5], np.float32)
    return Sample(
        (h, w, 2), [(image, (iw * 2, 2, 1)), (fill, (0, 0, 1)), (lone, (0, 0, 0))],
        [(w * 2, 2, 1)] * 3, [h * w * 2] * 3, first={0: -(top * iw + left) * 2},
        windows=[{0: (top, top + ih), 1: (left, left + iw)}, {1: (1, far), 2: (-far, 1)}],
        indices=[(1, 0), (-3, 100), (5, 2), (0, 2**33 + 17)],
    )  # fmt: skip


def test_windows_guards_and_positions():
    spec = pad_spec()
    samples = [
        pad_sample(9, 11, 2, 3, 4, 5),
        pad_sample(20, 7, -3, -2, 30, 4),
        pad_sample(3, 3, 5, 5, 2, 2),
    ]
    want = check(spec, samples)
    image = np.full((9, 11, 2), [-7, -9], np.int16)
    image[2:6, 3:8] = np.arange(40).reshape(4, 5, 2)
    np.testing.assert_array_equal(want[0][0].reshape(image.shape), image)
    check(spec, [samples[0]] * 3)


def test_lookup_tables():
    byte = load(0, dt.uint8)
    value = Expr("lookup", dt.float32, (ex.cast(byte, dt.int32),), 1)
    scalar = Expr("lookup", dt.float32, (ex.cast(load(2, dt.uint8), dt.int32),), 1)
    accesses = (Access(dt.uint8, (1,)), Access(dt.float32, (0,)), Access(dt.uint8, (0,)))
    stores = (Access(dt.float32, (1,)),)
    spec = KernelSpec(("lut",), (None,), accesses, stores, (value + scalar,))
    rng = np.random.default_rng(2)
    samples = []
    for n in (500, 77):
        data = rng.integers(0, 256, n).astype(np.uint8), rng.uniform(0, 1, 256).astype(np.float32)
        loads = [(data[0], (1,)), (data[1], (0,)), (np.array([n % 256], np.uint8), (0,))]
        samples.append(Sample((n,), loads, [(1,)], [n]))
    check(spec, samples)


@pytest.mark.parametrize("extents", [(), (3,)], ids=str)
def test_scalars_of_a_batch_are_one_program(extents):
    strides = (1,) * len(extents)
    value = load(0, dt.int32) * 3 + load(1, dt.int32)
    accesses = (Access(dt.int32, strides), Access(dt.int32, (0,) * len(extents)))
    spec = KernelSpec(("axpy",), extents, accesses, (Access(dt.int32, strides),), (value,))
    n = 3 if extents else 1
    samples = []
    for i in range(150):
        x, y = np.arange(n, dtype=np.int32) + i, np.array([10 * i], np.int32)
        loads = [(x, strides), (y, (0,) * len(extents))]
        samples.append(Sample(extents, loads, [strides], [n]))
    want = check(spec, samples, [Variant("packed", False, False), Variant("packed", True, False)])
    np.testing.assert_array_equal(
        [w[0] for w in want], [3 * (np.arange(n) + i) + 10 * i for i in range(150)]
    )
    table = make_table(spec, samples, make_outputs(spec, samples))
    assert gpu_kernel.get_kernel(spec).plan(table, 1024).programs == 1


def test_positions_of_four_axes():
    spec = KernelSpec(
        ("iota",), (None,) * 4, (), (Access(dt.int32, (None, None, None, 1)),),
        (((index(0) * 100 + index(1)) * 100 + index(2)) * 100 + index(3),),
        indices=tuple(Index(a, True) for a in range(4)),
    )  # fmt: skip
    shapes = [(2, 3, 4, 5), (1, 7, 1, 9)]
    samples = [
        Sample(s, [], [(s[1] * s[2] * s[3], s[2] * s[3], s[3], 1)], [int(np.prod(s))])
        for s in shapes
    ]
    check(spec, samples)


# -- runtime ---------------------------------------------------------------------------------------


class FakeShapes:
    def __init__(self, shapes: list[tuple[int, ...]]) -> None:
        self.rows = np.array(shapes, np.int64)
        self.rank = self.rows.shape[1]
        self.volumes = self.rows.prod(axis=1)
        self.uniform = len(set(shapes)) == 1
        self.strides = np.ones_like(self.rows)
        for d in range(self.rank - 2, -1, -1):
            self.strides[:, d] = self.strides[:, d + 1] * self.rows[:, d + 1]

    def sizes(self, itemsize: int) -> np.ndarray:
        return self.volumes * itemsize


class FakeStorage:
    def __init__(self, addresses, owner, strides=None, dense=False, external=False):
        self.addresses, self.owner, self.strides = addresses, owner, strides
        self.dense, self.external = dense, external

    def owners(self):
        return [self.owner]


@dataclass
class FakeNode:
    device: int | None
    shapes: FakeShapes
    dtype: DType = dt.int16


def read(storage: Any, node: FakeNode, sample: int) -> Any:
    import ctypes

    n = int(node.shapes.volumes[sample]) * node.dtype.bytes
    data = ctypes.string_at(int(storage.addresses[sample]), n)
    return np.frombuffer(data, node.dtype.np).reshape(node.shapes.rows[sample])


@pytest.mark.parametrize("shapes", [[(4, 5)] * 3, [(4, 5), (0, 2), (7, 3)]], ids=str)
@pytest.mark.parametrize("strided", [False, True])
def test_copies_there_and_back(shapes, strided):
    runtime = GpuRuntime(0, Stream())
    arrays = [
        np.arange(h * w * 2, dtype=np.int16).reshape(h, w * 2)[:, ::2] + 7 * i
        for i, (h, w) in enumerate(shapes)
    ]
    wide = [
        np.arange(h * w * 2, dtype=np.int16).reshape(h, w * 2) + 7 * i
        for i, (h, w) in enumerate(shapes)
    ]
    kept = wide if strided else [np.ascontiguousarray(a) for a in arrays]
    strides = np.array([(w * 2, 2) for _, w in shapes], np.int64) if strided else None
    storage = FakeStorage(np.array([k.ctypes.data for k in kept], np.int64), kept, strides)
    host, there = FakeNode(None, FakeShapes(shapes)), FakeNode(0, FakeShapes(shapes))
    source = there if strided else host  # the caller has packed strided host memory
    on_gpu = runtime.copy(there, source, storage)
    again = runtime.copy(there, there, on_gpu)
    back = runtime.copy(host, there, again)
    for s, array in enumerate(arrays):
        np.testing.assert_array_equal(read(back, host, s), array)
    assert back.strides is None


def test_launches_run_in_stream_order_and_keep_memory():
    spec = flat_spec("add_one", [dt.int32], [load(0, dt.int32) + 1])
    runtime = GpuRuntime(0, Stream())
    kernel = runtime.get_kernel(spec)
    first = np.zeros(500, np.int32)
    buffers = [runtime.take(2000) for _ in range(3)]
    addresses = [first.ctypes.data, *(b.address for b in buffers)]
    before = gpu_runtime.launch_count
    for source, target in itertools.pairwise(addresses):
        table = np.array([[500, target, source]], np.int64)
        runtime.launch(kernel, spec, table, [first, *buffers])
        del table
    last = buffers[-1]
    del buffers
    runtime.synchronize()
    np.testing.assert_array_equal(np.asarray(last).view(np.int32), np.full(500, 3))
    assert gpu_runtime.launch_count == before + 3


def test_source_is_kept_on_disk_under_its_name():
    spec = scale_spec()
    kernel = gpu_kernel.GpuKernel(spec)
    assert kernel.source_path.name.startswith("scale__u8_u8__")
    assert kernel.source_path.parent.name == "gpu"
    assert kernel.source_path.read_text() == kernel.source


def test_missing_triton_is_one_clear_error(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(RuntimeError, match=r'pip install "ndd-fusion\[gpu\]"'):
        GpuRuntime(0, Stream()).get_kernel(scale_spec())


# -- machine code ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("make", [scale_spec, image_spec, pad_spec], ids=lambda f: f.__name__)
def test_cubins_do_not_spill(make):
    reports = cubin.compile_all([make()])
    assert [r.arch for r in reports] == [80, 90, 120]
    for r in reports:
        assert r.local_bytes == 0, r
        assert r.shared_bytes == 0, r
        assert 0 < r.registers <= 128, r
        assert r.occupancy >= 0.25, r
        assert r.instructions > 50, r


@pytest.mark.slow
@pytest.mark.parametrize("grid", ["uniform", "ragged", "packed"])
def test_every_grid_compiles(grid):
    for make in (scale_spec, image_spec):
        report = cubin.compile_cubin(make(), 90, Variant(grid, True, grid == "uniform"))
        assert report.local_bytes == 0


@pytest.mark.slow
def test_aligned_flat_kernels_load_vectors():
    aligned, plain = (
        cubin.compile_cubin(scale_spec(), 90, Variant("ragged", False, a)) for a in (True, False)
    )
    # one 8-byte load and store per thread, besides those of the tail
    assert aligned.loads[64] == plain.loads[64] + 1
    assert aligned.stores.get(64) == 1 and 64 not in plain.stores


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_operations_compile(dtype):
    x, y = load(0, dtype), load(1, dtype)
    values = [binary(op, x, y) for op in ("div", "fmod")]
    values += [
        ex.unary(op, x) for op in ("floor", "trunc", "rint", "sqrt", "exp", "log", "sin", "cos")
    ]
    spec = flat_spec(f"compiled_{dtype}", [dtype] * 2, values)
    assert cubin.compile_cubin(spec, 90, block=128).registers > 0


@pytest.mark.slow
def test_compiled_arithmetic_is_ieee(monkeypatch, tmp_path):
    """No contraction, no approximation, no flushing of subnormals."""
    from triton.backends.compiler import GPUTarget

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    values = []
    for k, t in enumerate((dt.float32, dt.float64)):
        x, y = load(2 * k, t), load(2 * k + 1, t)
        values += [x * y + x, x - x * y, x / y, ex.sqrt(x)]
    spec = flat_spec("ieee", [dt.float32] * 2 + [dt.float64] * 2, values)
    kernel = gpu_kernel.GpuKernel(spec)
    compiled = kernel.compile(Variant("ragged", False, False), GPUTarget("cuda", 90, 32), 128)
    ptx, sass = compiled.asm["ptx"], compiled.asm["sass"]
    found = set(re.findall(r"\b((?:div|sqrt|fma|add|mul|sub)[.\w]*f(?:32|64))\b", ptx))
    assert found >= {"div.rn.f32", "sqrt.rn.f32", "div.rn.f64", "sqrt.rn.f64"}
    assert not [i for i in found if "approx" in i or "ftz" in i or "fma" in i]
    assert sass.count("FMUL") >= 2 and sass.count("DMUL") >= 2


@pytest.mark.slow
def test_conversions_compile():
    values = [
        ex.convert(load(k, s), t) for k, s in enumerate(NUMERIC) for t in NUMERIC if s is not t
    ]
    spec = flat_spec("all_conversions", list(NUMERIC), values)
    assert cubin.compile_cubin(spec, 90, block=128).registers > 0


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [dt.uint8, dt.int8, dt.uint64, dt.int32], ids=str)
def test_integer_operations_compile(dtype):
    x, y = load(0, dtype), load(1, dtype)
    lo, hi = ex.limits(dtype)
    values = [binary(op, x, y) for op in ("add", "sub", "mul", "and", "shl", "shr", "lt", "eq")]
    values += [-x, ~x, x + hi, x ^ lo, ex.select(x < y, lo, ex.const(hi, dtype))]
    if dtype.kind is DType.Kind.unsigned:
        values += [binary("udiv", x, y), binary("urem", x, y)]
    spec = flat_spec(f"compiled_{dtype}", [dtype] * 2, values)
    assert cubin.compile_cubin(spec, 90, block=128).local_bytes == 0
