"""Random programs that write to what they were given, in all modes: the values are always the same.

`python -m tests.faults.written_programs reference 1 1000` runs 1000 programs. Between calls, a program takes a
value as a NumPy array or a torch tensor, or through DLPack, and writes to it. A run that computes every call at
once and fuses nothing tells the values.

reference   NumPy runs the kernels, so that nothing is compiled; everything else is as usual
compiled    compiled kernels, of programs that repeat with other data, modes and writes
loops       a loop over a reader with other depths of prefetching, kernels as in `reference`
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ndd
from tests import programs
from tests.faults.child import Resources, main, numbers, size_limit
from tests.helpers import arrays, assert_same, samples

LONGEST = 10  # calls of a program
STRUCTURES = int(os.environ.get("NDD_FUZZ_STRUCTURES", "5")) * 8  # programs that are compiled
MODES = ("deferred", "eager", "sync_cpu", "sync_full")
# Calls that NumPy computes quickly: seven of eight programs consist of them.
_SLOW = {"resize", "warp", "blur", "derive", "rank", "mosaic", "equalize", "standardise", "deviate"}
QUICK = tuple(s for s in programs.STEPS if s.__name__ not in _SLOW)


@dataclass
class Write:
    """A write to a value (or to one of its samples) before a call."""

    before: int
    value: int
    sample: int
    way: str  # numpy, torch or dlpack

    def made(self, values: list[Any]) -> None:
        x = values[self.value]
        if x is None:
            return
        tensors = x.tensors
        array = self._array(tensors[self.sample % len(tensors)])
        assert array.flags.writeable
        if array.dtype == np.bool_:
            np.logical_not(array, out=array)
        else:
            array += array.dtype.type(3)

    def _array(self, tensor: Any) -> Any:
        # torch can neither export nor compute with some types, so it only lends the memory.
        if self.way == "numpy" or tensor.dtype in (ndd.uint16, ndd.uint32, ndd.uint64):
            return np.asarray(tensor)
        if self.way == "torch":
            return tensor.torch().numpy()
        return torch.from_dlpack(tensor).numpy()


def run(program: programs.Program, writes: list[Write]) -> list[list[Any]]:
    """The values that a program reads in the end; see `programs.run`."""
    values = [ndd.batch(b, layout="HWC") for b in program.inputs]
    for k, call in enumerate(program.calls):
        for write in writes:
            if write.before == k:
                write.made(values)
        values.append(call(values))
        for i, keep in enumerate(program.kept[: k + len(program.inputs)]):
            later = program.text[k + 1 :]
            if not keep and i not in program.read and not any(f"v{i}" in t.split() for t in later):
                values[i] = None
    return [arrays(values[i]) for i in reversed(program.read)]


def drawn_writes(program: programs.Program, r: random.Random) -> list[Write]:
    """Some writes to values that exist at their place."""
    found = []
    for _ in range(r.choice((0, 1, 1, 2, 3))):
        before = r.randrange(len(program.calls) + 1)
        value = r.randrange(len(program.inputs) + before)
        found.append(Write(before, value, r.randrange(4), r.choice(("numpy", "torch", "dlpack"))))
    return found


def check(program: programs.Program, writes: list[Write], modes: tuple[str, ...]) -> None:
    """Compare all modes with a run that computes every call at once, without fusion."""
    os.environ["NDD_FUSION"] = "0"
    with ndd.EvalMode.sync_cpu:
        wanted = run(program, writes)
    del os.environ["NDD_FUSION"]
    for mode in modes:
        with ndd.EvalMode[mode]:
            found = run(program, writes)
        for k, (got, want) in enumerate(zip(found, wanted, strict=True)):
            assert_same(got, want, f"{mode}, result {k} of\n{program}\nwith {writes}\n")


# -- what is run ---------------------------------------------------------------------------------


def reference(seed: int, number: int) -> None:
    use_reference_kernels()
    r = random.Random(f"{seed} {number}")
    steps = programs.STEPS if number % 8 == 0 else QUICK
    program = programs.make(r.randrange, size_limit(r.randint(1, LONGEST)), steps)
    # Modes that compute at once are left out most of the time: they are hardly ever wrong.
    modes = MODES if number % 4 == 0 else MODES[:2]
    check(program, drawn_writes(program, r), modes)


def compiled(seed: int, number: int) -> None:
    r = random.Random(f"{seed} {number}")
    structure = random.Random(f"{seed % 7} {r.randrange(STRUCTURES)}")
    program = programs.make(structure.randrange, size_limit(1 + structure.randrange(6)))
    inputs = [
        samples([a.shape for a in batch], batch[0].dtype, r.randrange(1 << 30))
        for batch in program.inputs
    ]
    program = program._replace(inputs=inputs)
    # Writes end fusion, so they are part of what is compiled.
    check(program, drawn_writes(program, structure), (MODES[number % 4],))


def loops(seed: int, number: int) -> None:
    """Labels and pixels of a reader, in a loop; what is written to one batch shows in no other."""
    use_reference_kernels()
    r = random.Random(f"{seed} {number}")
    steps = [r.choice(_BODY) for _ in range(size_limit(r.randint(1, 6)))]
    writes = [r.choice(("before", "middle", "after", "")) for _ in range(2)]
    reads_late = r.random() < 0.3
    size = r.choice((1, 2, 4))
    shuffled = r.random() < 0.5

    def body(data: Any, labels: Any) -> list[Any]:
        x = ndd.reshape(data, shape=[4, 4, 3], layout="HWC")
        y = labels * 2 + 1
        for k, step in enumerate(steps):
            if k == 0 and writes[0] == "before":
                labels.tensors[0].torch().add_(100)
            if k == len(steps) // 2 and writes[1] == "middle":
                np.asarray(x.tensors[-1])[...] = 7
            x = step(x, y)
        if writes[0] == "after":
            labels.tensors[-1].torch().zero_()
        z = y + labels
        if writes[1] == "after":
            np.asarray(y.tensors[0])[...] += 5
        return [x, y, z, labels]

    def epoch(prefetch: int) -> list[Any]:
        reader = ndd.readers.File(
            files=_files(), labels=[*range(24)], random_shuffle=shuffled, seed=number
        )
        found: list[Any] = []
        for data, labels in reader.next_epoch(batch_size=size, prefetch=prefetch):
            made = body(data, labels)
            found += made if reads_late else [arrays(v) for v in made]
        return [v if isinstance(v, list) else arrays(v) for v in found]

    with ndd.EvalMode.sync_cpu:
        wanted = epoch(0)
    for prefetch in (0, 1, 3):
        with ndd.EvalMode[MODES[number % 2 if prefetch else 0]]:
            found = epoch(prefetch)
        for k, (got, want) in enumerate(zip(found, wanted, strict=True)):
            names = [s.__name__ for s in steps]
            assert_same(got, want, f"prefetch {prefetch}, value {k}, {names} {writes} batch {size}")


def scaled(x: Any, y: Any) -> Any:
    return x * 2 - 3


def shifted(x: Any, y: Any) -> Any:
    return x + ndd.cast(y, dtype=ndd.float32)


def flipped(x: Any, y: Any) -> Any:
    return ndd.flip(x, horizontal=ndd.cast(y.slice[0], dtype=ndd.int32))


def cropped(x: Any, y: Any) -> Any:
    return ndd.crop(x, crop=[4, 4], out_of_bounds_policy="pad", crop_pos_x=0.3)


def typed(x: Any, y: Any) -> Any:
    return ndd.cast(x, dtype=ndd.uint8)


def turned(x: Any, y: Any) -> Any:
    return ndd.transpose(x, perm=[1, 0, 2], transpose_layout=False)


_BODY: tuple[Callable[[Any, Any], Any], ...] = (scaled, shifted, flipped, cropped, typed, turned)
_folder = tempfile.TemporaryDirectory()


def _files() -> list[str]:
    files = [Path(_folder.name) / f"{k:02d}.bin" for k in range(24)]
    if not files[0].exists():
        for k, file in enumerate(files):
            file.write_bytes(np.random.default_rng(k).bytes(48))
    return [str(f) for f in files]


def use_reference_kernels() -> None:
    """Run all kernels in NumPy from now on."""
    from ndd.kernels.cpu import runtime as cpu_runtime
    from tests.reference.kernels import ReferenceKernel

    cpu_runtime.get_kernel = ReferenceKernel


@contextmanager
def quiet_numpy() -> Iterator[None]:
    """NumPy warns of overflows, which the kernels define."""
    with np.errstate(all="ignore"):
        yield


WHATS: dict[str, Callable[[int, int], None]] = {f.__name__: f for f in (reference, compiled, loops)}


def attack(what: str, seed: int, count: int) -> dict[str, Any]:
    tried, before = 0, None
    with quiet_numpy():
        for number in numbers(count):
            WHATS[what](seed, number)
            tried += 1
            if tried == 20:
                before = Resources()
    if before is not None:
        before.check(megabytes=400)
    return {"tried": tried}


if __name__ == "__main__":
    main(attack)
