"""Calls of all ops with random arguments, whose inputs and results lie between guard pages.

`python -m tests.faults.op_calls all 1 1000` makes 1000 calls. Each is made twice, with memory at other places and
other fresh memory, in different modes: the results have the same bits, or both raise the same error, which must
be one of those that users expect. Inputs cannot be written to, and nobody reads or writes beyond an end.
"""

from __future__ import annotations

import os
import random
import resource
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ndd
from ndd.core.schema import OPS, OpDef
from tests.faults import guarded
from tests.faults.arguments import (
    STRUCTURES,
    Structure,
    argument,
    hostile,
    recipe_inputs,
    recipe_options,
    shapes_of,
    structure,
    values_of,
)
from tests.faults.child import Resources, main, numbers, size_limit

REPEAT = 40  # calls of one structure, one after the other
HOSTILE = 0.2  # of the calls, one argument is hostile
MOST_MEMORY = 1 << 30
EXPECTED = (ValueError, TypeError, IndexError, OverflowError)
MODES = ("deferred", "eager", "sync_cpu", "sync_full")
# Files are the subject of pictures.py and records.py, and there is no GPU here.
_OTHERS = ("decoders.", "peek", "optical_flow")
CALLED = tuple(op for name, op in sorted(OPS.items()) if not name.startswith(_OTHERS))


class Call:
    """One call of an op, with drawn inputs and arguments."""

    def __init__(self, seed: int, number: int, made: Structure | None = None) -> None:
        r = random.Random(f"{seed} {number // REPEAT}")
        self.structure = made or structure(r.choice(CALLED), r.randrange(STRUCTURES))
        self.draw = random.Random(f"{seed} {number} values")
        self.noise = np.random.default_rng([seed, number])
        self.count = self.draw.randint(1, 4) if self.structure.is_batch else 1
        self.inputs = self._inputs()
        self.options = self._options()
        self.seed = self.draw.randrange(1000)

    @property
    def op(self) -> OpDef:
        return self.structure.op

    def _inputs(self) -> list[list[Any]]:
        if self.structure.recipe is not None:
            return recipe_inputs(self.structure, self.count, self.draw, self.noise)
        made: list[list[Any]] = []
        for dtype in self.structure.dtypes:
            shapes = [a.shape for a in made[0]] if made and self.draw.random() < 0.8 else None
            shapes = shapes or shapes_of(self.structure, self.count, self.draw)
            made.append([values_of(shape, dtype, self.noise) for shape in shapes])
        return made

    def _options(self) -> dict[str, Any]:
        if self.structure.recipe is not None:
            options = recipe_options(self.structure, self.count, self.draw)
        else:
            options = dict(self.structure.choices)
            for p in self.structure.given:
                options[p.name] = argument(p, self.structure, self.count, self.draw)
        options = dict([*options.items()][: size_limit(100)])
        if self.draw.random() < HOSTILE and self.op.others:
            run_time = [p.name for p in self.op.others if p.kind != "static"]
            if run_time:
                options[self.draw.choice(run_time)] = hostile(self.draw)
        if not self.op.data and self.structure.is_batch:
            options["batch_size"] = self.count
        return options

    def result(self, place: Callable[[Any], Any]) -> Any:
        """What the op returns; inputs lie where `place` puts them."""
        given = []
        recipe = self.structure.recipe
        for k, samples in enumerate(self.inputs):
            arrays = [place(a) for a in samples]
            layout = recipe.inputs[k].layout if recipe else self.structure.layout
            if self.structure.is_batch:
                given.append(ndd.as_batch(arrays, layout=layout))
            else:
                given.append(ndd.as_tensor(arrays[0], layout=layout))
        options = dict(self.options)
        if self.op.rng_at is not None:
            options["rng"] = ndd.random.RNG(seed=self.seed)
        return self.op.public(*given, **options)

    def __str__(self) -> str:
        shapes = [[(a.shape, str(a.dtype)) for a in samples] for samples in self.inputs]
        return f"{self.op.name}({shapes}, layout={self.structure.layout!r}, {self.options})"


def values(result: Any) -> list[Any]:
    """Copies of all arrays of a result, which may be several batches."""
    if isinstance(result, (tuple, list)):
        return [a for part in result for a in values(part)]
    if isinstance(result, ndd.Batch):
        return [np.array(t) for t in result.tensors]
    return [np.array(result)]


def outcome(call: Call, mode: str, place: Callable[[Any], Any], filling: int) -> Any:
    """Shapes, types and bytes of all values, or the error."""
    guarded.filling = filling
    try:
        with ndd.EvalMode[mode]:
            found = values(call.result(place))
    except MemoryError:
        return "MemoryError", ""  # in deferred mode it names the call that reads the value
    except EXPECTED as error:
        return type(error).__name__, str(error)
    return [(a.shape, str(a.dtype), bits(a)) for a in found]


def bits(array: Any) -> bytes:
    """The bytes of an array; any nan equals any nan."""
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), array.dtype.type(np.nan), array)
    return bytes(array.tobytes())


WHATS = {"all": Call}


def load_compilers() -> None:
    """Load everything that a compilation needs before memory is limited.

    Numba imports SciPy's linear algebra when it first compiles. OpenBLAS, which comes with it, neither returns nor
    raises if it is loaded when there is no memory for its threads.
    """
    import numba

    numba.njit(lambda x: x + 1)(1)


def attack(what: str, seed: int, count: int) -> dict[str, Any]:
    os.chdir(tempfile.mkdtemp())  # `dump_image` writes files
    guarded.guard_the_pool()
    inputs = guarded.Inputs()
    counts: Counter[str] = Counter(tried=0)
    outcome(Call(0, 0), "eager", lambda a: inputs.array(a, True), 0)
    load_compilers()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * guarded.PAGE + MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    before = Resources()
    for number in numbers(count):
        call = Call(seed, number)
        one = outcome(call, MODES[number % 4], lambda a: inputs.array(a, True), 0x55)
        other = outcome(call, MODES[number // 4 % 4], lambda a: inputs.array(a, False), 0xAB)
        assert one == other, f"{call}:\n{str(one)[:1000]}\n{str(other)[:1000]}"
        assert not guarded.overruns, f"{call}: {guarded.overruns}"
        counts["tried"] += 1
        counts["computed" if isinstance(one, list) else one[0]] += 1
        counts[f"{call.op.name} {'computed' if isinstance(one, list) else 'refused'}"] += 1
    before.check(megabytes=1500)
    return {k: n for k, n in counts.items() if " " not in k}


if __name__ == "__main__":
    main(attack)
