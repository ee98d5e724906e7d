"""Windows that leave their input: the policies of crop and slice, and what each of them reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes, numbered

# Names of policies → the rule. Those of elements a b c d: clamp repeats the last one (d d d),
# reflect_1001 mirrors them all (d c b), reflect_101 all but the last (c b a), wrap begins anew.
RULES = {
    "error": "error",
    "constant": "constant",
    "const": "constant",
    "pad": "constant",
    "fill": "constant",
    "trim_to_shape": "trim_to_shape",
    "clamp": "clamp",
    "edge": "clamp",
    "reflect": "reflect_1001",
    "reflect_1001": "reflect_1001",
    "reflect1001": "reflect_1001",
    "1001": "reflect_1001",
    "reflect_101": "reflect_101",
    "reflect101": "reflect_101",
    "101": "reflect_101",
    "wrap": "wrap",
}
POLICIES = tuple(RULES)
CONSTANT_POLICIES = POLICIES[:6]
_MEANING = (
    "What to do with a window that leaves the input: 'error'; 'pad', 'fill', 'constant' or 'const' "
    "use `fill_values`; 'trim_to_shape' cuts it off"
)
CONSTANT_POLICY_DOC = f"{_MEANING}."
POLICY_DOC = (
    f"{_MEANING}; 'clamp' or 'edge' repeat the last value (abc|cc), 'reflect' or 'reflect_1001' "
    "mirror the input (abc|cb), 'reflect_101' mirrors it without its last value (abc|ba), and "
    "'wrap' repeats it (abc|ab)."
)


def rule_of(policy: str) -> str:
    """The rule that a policy's name stands for."""
    return RULES[policy]


def bordered(op: str, x: Node, axes: Sequence[int], start: Array, size: Array, rule: str) -> Node:
    """The window [start, start + size) of every sample, both [samples, rank]; `rule` says what is
    read outside of the input."""
    extents = x.shapes.rows
    empty = ((extents == 0) & (size > 0)).any(axis=1) & (Shapes(size).checked().volumes > 0)
    if empty.any():
        s = int(np.flatnonzero(empty)[0])
        raise ValueError(
            f"sample {s} of shape {x.shapes.tuples[s]} has no values that could be repeated in a "
            f"window of shape {tuple(size[s].tolist())}"
        )
    listed = []
    for axis in axes:
        counts = size[:, axis]
        places = numbered(counts) + np.repeat(start[:, axis], counts)
        n = np.repeat(extents[:, axis], counts)
        listed.append(build.Listed(axis, positions(places, n, rule), counts))
    return build.take(op, x, listed, x.batch)


def positions(places: Array, n: Array, rule: str) -> Array:
    """The elements, of `n` each, that are read for places inside and outside of them."""
    last = np.maximum(n, 1) - 1
    if rule == "clamp":
        found: Array = np.clip(places, 0, last)
    elif rule == "wrap":
        found = places % (last + 1)
    elif rule == "reflect_1001":
        around = places % (2 * last + 2)
        found = np.minimum(around, 2 * last + 1 - around)
    else:
        around = places % np.maximum(2 * last, 1)
        found = np.minimum(around, 2 * last - around)
    return found
