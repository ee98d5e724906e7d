"""Damaged picture files, and what becomes of them: `python -m tests.faults.pictures all SEED COUNT`.

A mutant is a pure function of (seed, number), see mutations.py. Every mutant is decoded in two child
processes whose fresh memory is filled with different bytes, so that pixels which the decoder has not
written differ. Files are decoded in groups; if a child dies, hangs or takes too much memory or time,
the next child decodes the files of that group one by one, which finds the one that is trouble.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.decoders.fixtures import as_bytes, encoded
from tests.faults.child import Clock, is_over, main, note, size_limit
from tests.faults.corpus import corpus
from tests.faults.mutations import mutant
from tests.helpers import ROOT

PAST = Path(__file__).with_name("past")  # files that once were trouble, by what they did
MAX_PIXELS = 1 << 20
MAX_GROWTH_MB = 160  # a picture of MAX_PIXELS has 8 MB at most; decoders take it a few times
# Of CPU time for one mutant. The largest takes some 20 ms, but its kernel may have to be compiled.
SLOW_SECONDS = 10.0
HANG_SECONDS = 120.0
START_SECONDS = 300.0  # imports and, with an empty cache, some twenty kernels
FILLINGS = (0x55, 0xAB)  # fresh memory of the two children
GROUP = 16  # files that are decoded together
Files = list[tuple[int, bytes]]  # numbers and contents


# -- files ---------------------------------------------------------------------------------------


def file_of(source: str, number: int) -> tuple[str, bytes]:
    """Kind and content of a file: a mutant of a seed, or a file of a folder."""
    if source.isdigit():
        return mutant(int(source), number, size_limit(3))
    return "file", (Path(source) / str(number)).read_bytes()


def way_of(number: int) -> tuple[int, str]:
    """How a file is decoded: one of four ways, and one of four colours. Groups of 64 files share both."""
    block = number // 64
    way = 0 if block % 8 == 0 else 1 + block % 3
    return way, ("RGB", "GRAY", "ANY_DATA", "YCbCr")[(block // 3 + block // 8) % 4]


# -- the child -----------------------------------------------------------------------------------

Outcome = tuple[str, str]  # digest and outcome of a file


def decode_all(groups: Iterator[Files], filling: int) -> Iterator[dict[str, Any]]:
    """What becomes of each file, group by group, in this process."""
    import ndd

    ndd.decoders.set_max_pixels(MAX_PIXELS)
    _fill_fresh_memory(filling)
    noise = np.random.default_rng(filling)
    bright = [n for n in ("jpeg", "tiff_jpeg", "png", "webp", "jp2", "bmp") if n in corpus()]
    good = [as_bytes(corpus()[n]) for n in bright]
    others = [as_bytes(encoded(e, noise.integers(0, 256, (64, 64, 3), np.uint8)))
              for e in (".jpg", ".tiff", ".png", ".webp", ".jp2", ".bmp")]  # fmt: skip
    for number in range(0, 64 * 32, 64):  # all ways and colours, which compiles their kernels
        _decoded(ndd, [(number, corpus()["png"])], good[0])
    faults = dict(f.split("=") for f in os.environ.get("NDD_FAULT", "").split(",") if f)
    for files in groups:
        first = files[0][0]
        # Decoders that keep memory keep other pixels in each child.
        ndd.decoders.image(ndd.batch([others[first // GROUP % 6]])).evaluate()
        started, before = time.process_time(), _fresh_peak_kb()
        for number, _ in files:
            _misbehave(faults.get(str(number), ""))
        found = _decoded(ndd, files, good[first // GROUP % len(good)])
        peak = _peak_kb()
        for k, (number, _) in enumerate(files):
            if faults.get(str(number)) == "unwritten":
                found[k] = found[k][0] + str(filling), found[k][1]
        yield {
            "first": first, "found": found, "seconds": round(time.process_time() - started, 3),
            "grown_mb": (peak - before) >> 10,
        }  # fmt: skip


def _misbehave(fault: str) -> None:
    """Do on purpose what no file may cause, to test the parent."""
    if fault == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif fault == "hang":
        time.sleep(3600)
    elif fault == "memory":
        np.ones(MAX_GROWTH_MB << 19, np.float32)


def _fresh_peak_kb() -> int:
    """Begin to measure the peak of resident memory anew, and return what is resident."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak_kb()


def _peak_kb() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def _decoded(ndd: Any, files: Files, good: Any) -> list[Outcome]:
    """Digest and outcome of each file of a group, decoded together in one of several ways."""
    ndd.decoders.errors.clear()
    way, colour = way_of(files[0][0])
    if way == 0 and len(files) > 1:
        return [_decoded(ndd, [file], good)[0] for file in files]
    bad = [as_bytes(data) for _, data in files]
    try:
        if way == 0:
            ndd.peek_image_shape(ndd.tensor(bad[0])).evaluate()
        with ndd.EvalMode.deferred:
            x = ndd.decoders.image(
                ndd.batch([*bad, good]), on_error="raise" if way == 0 else "fill",
                output_type=getattr(ndd.types, colour),
            )  # fmt: skip
            if way == 2:
                x = ndd.crop(x, crop=[5, 4], crop_pos_x=0.4, out_of_bounds_policy="pad")
            elif way == 3 and colour == "RGB":
                x = ndd.resize(x, size=[9, 8])
            pixels = [np.array(t) for t in x.tensors[: len(files)]]
    except ValueError as error:
        if len(files) > 1:
            return [_decoded(ndd, [file], good)[0] for file in files]
        assert way != 0 or "sample 0" in str(error), error
        return [(_without_place(str(error)), "refused")]
    except MemoryError:
        return [("", "memory")] * len(files)
    refused = {e.index: _without_place(str(e.cause)) for e in ndd.decoders.errors}
    assert len(files) not in refused, f"the sound file was refused: {refused}"
    return [
        (refused[k], "refused") if k in refused
        else (f"{p.shape} {hashlib.sha1(p.tobytes()).hexdigest()}", "decoded")
        for k, p in enumerate(pixels)
    ]  # fmt: skip


def _without_place(text: str) -> str:
    """An error without the place in the batch, which is another one if files are decoded one by one."""
    return re.sub(r"sample \d+", "sample", text)


def _fill_fresh_memory(filling: int) -> None:
    """Fill our pooled memory and the decoder's reused picture; MALLOC_PERTURB_ does the rest."""
    import ctypes

    from ndd.codecs.image import decode
    from ndd.kernels.common.buffers import Buffer, Pool

    take, reused = Pool.take, decode._reused

    def filled(self: Pool, nbytes: int) -> Buffer:
        buffer = take(self, nbytes)
        ctypes.memset(buffer.address, filling, nbytes)
        return buffer

    def refilled(*arguments: Any) -> Any:
        if decode._own.scratch is not None:
            np.asarray(decode._own.scratch)[...] = filling
        return reused(*arguments)

    Pool.take = filled  # type: ignore[method-assign]
    decode._reused = refilled


def child(source: str, first: int, count: int, filling: int, size: int) -> None:
    """Decode mutants in groups; two lines for each. A group without a result is trouble."""
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    out = os.fdopen(os.dup(1), "w", buffering=1)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)  # the C libraries print complaints

    def groups() -> Iterator[Files]:
        for begin, end in ranges(first, first + count, size):
            if begin > first and is_over():
                print(json.dumps({"over": begin}), file=out)
                return
            print(json.dumps({"begin": begin, "end": end}), file=out)
            yield [(number, file_of(source, number)[1]) for number in range(begin, end)]

    for result in decode_all(groups(), filling):
        print(json.dumps(result), file=out)


def ranges(first: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """Groups of `size` numbers, which begin at multiples of it."""
    while first < end:
        stop = min(end, first // size * size + size)
        yield first, stop
        first = stop


# -- the parent ----------------------------------------------------------------------------------


@dataclass
class Trouble:
    """A mutant that did what no file may do."""

    source: str  # a seed, or a folder of files
    number: int
    kind: str  # crash, hang, memory, slow or unwritten
    name: str
    detail: str = ""


@dataclass
class Results:
    """What became of the mutants of a run."""

    tried: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    troubles: list[Trouble] = field(default_factory=list)


def run(seed: int, count: int, first: int = 0) -> Results:
    """Decode `count` mutants in child processes; two at a time, with different fresh memory."""
    return _run([_Child(str(seed), first, count, filling) for filling in FILLINGS])


def run_files(contents: list[bytes]) -> Results:
    """The same with given files; their numbers are their positions."""
    with tempfile.TemporaryDirectory() as folder:
        for number, content in enumerate(contents):
            (Path(folder) / str(number)).write_bytes(content)
        return _run([_Child(folder, 0, len(contents), filling) for filling in FILLINGS])


def _run(parts: list[_Child]) -> Results:
    found, first, source = Results(), parts[0].next, parts[0].source
    with selectors.DefaultSelector() as waiting:
        for part in parts:
            part.start(waiting)
        clock = Clock()
        while waiting.get_map():
            ready = waiting.select(timeout=1.0)
            for key, _ in ready:
                key.data.read(waiting)
            for part in parts:
                part.check_time(clock.now())
    found.tried = min(part.end for part in parts) - first
    one, other = (part.digests for part in parts)
    for part in parts:
        found.outcomes.update(part.outcomes)
        found.troubles += part.troubles
    for number in sorted(one.keys() & other.keys()):
        if one[number] != other[number]:
            name = file_of(source, number)[0]
            detail = f"{one[number][:150]} | {other[number][:150]}"
            found.troubles.append(Trouble(source, number, "unwritten", name, detail))
    return found


class _Child:
    """A process that decodes the mutants from a number on; it is replaced when it dies."""

    def __init__(self, source: str, first: int, count: int, filling: int) -> None:
        self.source, self.next, self.end, self.filling = source, first, first + count, filling
        self.outcomes: Counter[str] = Counter()
        self.digests: dict[int, str] = {}
        self.troubles: list[Trouble] = []
        self.current: tuple[int, int] | None = None  # the group that is being decoded
        self.single_until = (
            0  # up to here, files are decoded one by one to find which one is trouble
        )
        self.process: subprocess.Popen[bytes] | None = None
        self.rest = b""
        self.heard: float | None = None  # when it told something last; None if right now

    def start(self, waiting: selectors.BaseSelector) -> None:
        is_single = self.next < self.single_until
        left = (self.single_until if is_single else self.end) - self.next
        if left <= 0:
            return
        size = 1 if is_single else GROUP
        arguments = [str(a) for a in ("--child", self.source, self.next, left, self.filling, size)]
        env = {**os.environ, "MALLOC_PERTURB_": str(self.filling), "NDD_NUM_THREADS": "1"}
        env |= {"NDD_COMPILE_AHEAD": "0", "NDD_POOL_MB": "16"}  # so that growth shows
        command = [sys.executable, "-m", "tests.faults.pictures", *arguments]
        self.process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE)
        self.heard, self.current, self.rest, self.is_ready = None, None, b"", False
        self.is_left = False  # whether its further results do not count
        assert self.process.stdout is not None
        waiting.register(self.process.stdout, selectors.EVENT_READ, self)

    def read(self, waiting: selectors.BaseSelector) -> None:
        assert self.process is not None and self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        self.heard = None
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))
        if not data:
            waiting.unregister(self.process.stdout)
            self.process.stdout.close()
            self._ended(self.process.wait())
            self.start(waiting)

    def _take(self, line: dict[str, Any]) -> None:
        if self.is_left:
            return
        if "over" in line:
            self.end = line["over"]
            return
        if "begin" in line:
            self.current, self.is_ready = (line["begin"], line["end"]), True
            return
        first, found = line["first"], line["found"]
        self.current = None
        outcomes = [outcome for _, outcome in found]
        is_large, is_slow = line["grown_mb"] > MAX_GROWTH_MB, line["seconds"] > SLOW_SECONDS
        if len(found) > 1 and (is_large or is_slow or "memory" in outcomes):
            self._search(first, first + len(found))
            return
        self.next = first + len(found)
        self.outcomes.update(outcomes)
        self.digests.update({first + k: digest for k, (digest, _) in enumerate(found)})
        if is_large or "memory" in outcomes:
            self._trouble(first, "memory", f"{line['grown_mb']} MB")
        if is_slow:
            self._trouble(first, "slow", f"{line['seconds']} s")

    def _search(self, first: int, end: int) -> None:
        """Decode the files of a group again, one by one, in another process."""
        self.next, self.single_until, self.is_left = first, end, True
        if self.process is not None:
            self.process.kill()

    def _ended(self, status: int) -> None:
        if self.is_left:
            return
        if self.current is None:
            if status != 0:
                last = min(self.next, self.end - 1)
                self._trouble(last, "crash", f"exit code {status} between files or at exit")
                self.next += 1
            return
        first, end = self.current
        if end - first > 1:
            self._search(first, end)
            return
        self._trouble(first, "hang" if status == -9 else "crash", f"exit code {status}")
        self.next = first + 1

    def _trouble(self, number: int, kind: str, detail: str) -> None:
        name = file_of(self.source, number)[0]
        self.troubles.append(Trouble(self.source, number, kind, name, detail))

    def check_time(self, now: float) -> None:
        longest = HANG_SECONDS if self.is_ready else START_SECONDS
        if self.heard is None:
            self.heard = now
        elif self.process is not None and now - self.heard > longest:
            self.process.kill()


def keep(trouble: Trouble) -> Path:
    """Keep the file of a trouble, so that it is tried in every run of the tests."""
    past = Path(os.environ.get("NDD_FUZZ_PAST", PAST))
    past.mkdir(exist_ok=True)
    path = past / f"{trouble.kind}-{trouble.name}-{trouble.source}-{trouble.number}.bin"
    path.write_bytes(file_of(trouble.source, trouble.number)[1])
    return path


WHATS = {"all": mutant}


def attack(what: str, seed: int, count: int) -> dict[str, Any]:
    """Decode mutants; files that are trouble are kept."""
    found = run(seed, count, int(os.environ.get("NDD_FUZZ_FIRST", "0")))
    if found.troubles:
        note(found.troubles[0].number)
        kept = [str(keep(trouble)) for trouble in found.troubles]
        raise AssertionError(f"{found.troubles} kept as {kept}")
    return {"tried": found.tried, **found.outcomes}


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        child(sys.argv[2], *map(int, sys.argv[3:]))
    else:
        main(attack)
