"""Finds kernels that compute functions of one byte, to look them up in tables of 256 entries.

Each table is computed once per sample, so results are exact; lookups are often faster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from . import dtypes as dt
from .expr import Expr, cost, walk
from .rewrites import without_detours
from .spec import KernelSpec

# A chain that costs less than this is faster vectorised than looked up (bench/tabulate.py, ns
# computed / looked up: cost 9: 0.20 / 0.42, cost 17: 0.44 / 0.37, cost 33: 1.4 / 0.39).
TABLE_MIN_COST = 24
# The same for bytes side by side that become bytes, if the CPU looks up 64 at once (AVX-512 VBMI).
# Zen 5, 16 photos of 375×500×3 bytes, computed / looked up: brightness (cost 11) 0.56 / 0.22 ms,
# solarize by arithmetic (10) 0.36 / 0.26. A copy takes 0.22, so cheaper operations do not gain.
BYTES_MIN_COST = 8
MAX_TABLES = 8  # one for each stored value
_COMPUTED = ("fetch", "bilinear", "lane", "core")


def tabulated(spec: KernelSpec, looks_up_many: bool = False) -> KernelSpec:
    """The spec, marked if all its stored values should be looked up.

    They should if each varies with one 8-bit load only and is expensive to compute.
    `looks_up_many`: whether the CPU looks up 64 bytes at once.
    """
    count = len(spec.static_points) * len(spec.values)
    if not spec.loop_axes or count > MAX_TABLES or _computes_positions(spec):
        return spec
    values: list[Expr] = []
    for point in spec.static_points:
        at_point = without_detours(spec.at_point(point))
        if not _is_of_bytes(spec, at_point):  # nearly always at the first point or never
            return spec
        values += at_point
    total = sum(cost(v) for v in values) // max(len(values), 1)
    least = BYTES_MIN_COST if looks_up_many and _is_run_of_bytes(spec) else TABLE_MIN_COST
    return replace(spec, is_tabulated=True) if total >= least else spec


def _computes_positions(spec: KernelSpec) -> bool:
    """Whether the values read at computed positions, or a core's results, at every point.

    A quick answer, without looking at the points. Only a test of positions (`eq`) may remove such a
    read from the values at one of them.
    """
    ops = {e.op for e in walk(spec.values)}
    return not ops.isdisjoint(_COMPUTED) and "eq" not in ops


def _is_of_bytes(spec: KernelSpec, values: list[Expr]) -> bool:
    """Whether each value varies with one 8-bit load only, which is read where the loops are."""
    depths: dict[Expr, int] = {}
    for e in walk(values):
        depths[e] = spec.depth(e, depths)
        if depths[e] and e.op in _COMPUTED:
            return False
    return byte_loads(values, depths) is not None


def _is_run_of_bytes(spec: KernelSpec) -> bool:
    """Whether the only loop goes over bytes that lie side by side, in the input and the result."""
    rows = [a for a in (*spec.loads, *spec.stores) if not a.is_scalar]
    is_flat = len(spec.loop_axes) == 1 and all(a.strides == (1,) for a in rows)
    return is_flat and {a.dtype for a in rows} <= {dt.uint8, dt.int8}


def byte_loads(values: Sequence[Expr], depths: Mapping[Expr, int]) -> list[Expr] | None:
    """For each value, the only 8-bit load that it varies with; None if a value varies otherwise."""
    found: list[Expr] = []
    for value in values:
        varying = [e for e in walk([value]) if not e.args and depths[e] > 0]
        if len(varying) != 1 or varying[0].op != "load" or varying[0].dtype.bits != 8:
            return None
        found.append(varying[0])
    return found
