"""Damaged picture files, and what becomes of them: `python -m tests.faults.pictures SEED COUNT`.

A mutant is a pure function of (seed, number). Mutations know the structure of their format
(structures.py): they change lengths, counts, offsets and sizes, repair checksums, cut, repeat and
exchange parts. Every mutant is decoded in two child processes whose fresh memory is filled with
different bytes, so that pixels which the decoder has not written differ. A child that dies, hangs
or takes too much memory costs one mutant; the next child goes on behind it.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.decoders.fixtures import as_bytes, encoded
from tests.faults.corpus import corpus
from tests.faults.structures import fields_of, png_with_checksums
from tests.helpers import ROOT

PAST = Path(__file__).with_name("past")  # files that once were trouble, by what they did
MAX_PIXELS = 1 << 20
MAX_GROWTH_MB = 160  # a picture of MAX_PIXELS has 8 MB at most; decoders take it a few times
SLOW_SECONDS = 5.0  # for one mutant; the largest takes some 20 ms on an idle machine
HANG_SECONDS = 60.0
FILLINGS = (0x55, 0xAB)  # fresh memory of the two children


# -- files ---------------------------------------------------------------------------------------


def mutant(seed: int, number: int) -> tuple[str, bytes]:
    """The kind of the file, and the damaged file."""
    rng = np.random.default_rng([seed, number])
    names = list(corpus())
    name = names[number % len(names)]
    data = corpus()[name]
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        data = _mutated(name, data, rng)
    if name.startswith("png") and rng.random() < 0.8:
        data = png_with_checksums(data)
    return name, data


def file_of(source: str, number: int) -> tuple[str, bytes]:
    """Kind and content of a file: a mutant of a seed, or a file of a folder."""
    if source.isdigit():
        return mutant(int(source), number)
    return "file", (Path(source) / str(number)).read_bytes()


def _mutated(name: str, data: bytes, rng: np.random.Generator) -> bytes:
    if not data:
        return data
    choice = rng.random()
    found = fields_of(name, data)
    if found and choice < 0.6:
        return _with_field(data, found[int(rng.integers(len(found)))], rng)
    at, run = int(rng.integers(len(data))), int(rng.integers(1, 24))
    if choice < 0.75:
        return (
            data[:at] + bytes([data[at] ^ int(rng.choice([0xFF, 1, 0x80, 0x10]))]) + data[at + 1 :]
        )
    if choice < 0.82:
        return data[:at]
    if choice < 0.88:
        return data[:at] + rng.bytes(run) + data[at + run :]
    if choice < 0.92:
        return data[:at] + data[at + run :]
    if choice < 0.96:
        return data[: at + run] + data[at:]
    other = list(corpus().values())[int(rng.integers(len(corpus())))]
    return data[:at] + other[min(at, len(other)) :]


def _with_field(data: bytes, where: Any, rng: np.random.Generator) -> bytes:
    """Another number in a field: near the old one, near the file's size, or near a power of two."""
    order = "big" if where.order == ">" else "little"
    old = int.from_bytes(data[where.at : where.at + where.size], order)
    top = 1 << 8 * where.size
    near = int(rng.integers(-2, 3))
    base = rng.choice(["old", "size", "power", "any", "zero", "double"])
    new = {
        "old": old + near, "size": len(data) - where.at + near, "zero": 0, "double": old * 2 + near,
        "power": (1 << int(rng.integers(0, 8 * where.size + 1))) + near,
        "any": int(rng.integers(0, top)),
    }[str(base)]  # fmt: skip
    return (
        data[: where.at] + (new % top).to_bytes(where.size, order) + data[where.at + where.size :]
    )


# -- the child -----------------------------------------------------------------------------------


def decode_all(contents: Iterator[tuple[int, bytes]], filling: int) -> Iterator[dict[str, Any]]:
    """What becomes of each file, in this process."""
    import ndd

    ndd.decoders.set_max_pixels(MAX_PIXELS)
    _fill_fresh_memory(filling)
    noise = np.random.default_rng(filling)
    bright = [n for n in ("jpeg", "tiff_jpeg", "png", "webp", "jp2", "bmp") if n in corpus()]
    good = [as_bytes(corpus()[n]) for n in bright]
    others = [as_bytes(encoded(e, noise.integers(0, 256, (64, 64, 3), np.uint8)))
              for e in (".jpg", ".tiff", ".png", ".webp", ".jp2", ".bmp")]  # fmt: skip
    for number in range(0, 1024, 64):  # all ways and colours, which compiles their kernels
        _decoded(ndd, corpus()["png"], number, good[0])
    faults = dict(f.split("=") for f in os.environ.get("NDD_FAULT", "").split(",") if f)
    for number, data in contents:
        if number % 8 == 0:  # decoders that keep memory keep other pixels in each child
            ndd.decoders.image(ndd.batch([others[number // 8 % 6]])).evaluate()
        started, before = time.perf_counter(), _fresh_peak_kb()
        fault = faults.get(str(number))
        if fault:
            _misbehave(fault)
        digest, outcome = _decoded(ndd, data, number, good[number % len(good)])
        peak = _peak_kb()
        if fault == "unwritten":
            digest += str(filling)
        yield {
            "number": number, "outcome": outcome, "digest": digest,
            "seconds": round(time.perf_counter() - started, 3), "grown_mb": (peak - before) >> 10,
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


def _decoded(ndd: Any, data: bytes, number: int, good: Any) -> tuple[str, str]:
    """Digest and outcome of one file, decoded in one of several ways."""
    ndd.decoders.errors.clear()
    way = number // 64 % 4
    bad = as_bytes(data)
    try:
        if way == 0:
            ndd.peek_image_shape(ndd.tensor(bad)).evaluate()
        colour = ("RGB", "GRAY", "ANY_DATA", "YCbCr")[number // 256 % 4]
        with ndd.EvalMode.deferred:
            x = ndd.decoders.image(
                ndd.batch([bad, good]), on_error="raise" if way == 0 else "fill",
                output_type=getattr(ndd.types, colour),
            )  # fmt: skip
            if way == 2:
                x = ndd.crop(x, crop=[5, 4], crop_pos_x=0.4)
            elif way == 3 and colour == "RGB":
                x = ndd.resize(x, size=[9, 8])
            pixels = np.array(x.tensors[0])
    except ValueError as error:
        if way == 0:
            assert "sample 0" in str(error), error
        return str(error), "refused"
    except MemoryError:
        return "", "memory"
    if ndd.decoders.errors:
        return str(ndd.decoders.errors[0].cause), "refused"
    return f"{pixels.shape} {hashlib.sha1(pixels.tobytes()).hexdigest()}", "decoded"


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


def child(source: str, first: int, count: int, filling: int) -> None:
    """Decode mutants; each line tells one result. A number without a result is trouble."""
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    out = os.fdopen(os.dup(1), "w", buffering=1)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)  # the C libraries print complaints

    def contents() -> Iterator[tuple[int, bytes]]:
        for number in range(first, first + count):
            print(json.dumps({"begin": number}), file=out)
            yield number, file_of(source, number)[1]

    for result in decode_all(contents(), filling):
        print(json.dumps(result), file=out)


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
    found = Results(tried=parts[0].end - parts[0].next)
    source = parts[0].source
    with selectors.DefaultSelector() as waiting:
        for part in parts:
            part.start(waiting)
        while waiting.get_map():
            ready = waiting.select(timeout=1.0)
            for key, _ in ready:
                key.data.read(waiting)
            for part in parts:
                part.check_time(waiting)
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
        self.current: int | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.rest = b""
        self.heard = time.monotonic()

    def start(self, waiting: selectors.BaseSelector) -> None:
        left = self.end - self.next
        if left <= 0:
            return
        arguments = [str(a) for a in ("--child", self.source, self.next, left, self.filling)]
        env = {**os.environ, "MALLOC_PERTURB_": str(self.filling), "NDD_NUM_THREADS": "1"}
        env["NDD_COMPILE_AHEAD"] = "0"
        command = [sys.executable, "-m", "tests.faults.pictures", *arguments]
        self.process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE)
        self.heard, self.current, self.rest = time.monotonic() + 30, None, b""
        assert self.process.stdout is not None
        waiting.register(self.process.stdout, selectors.EVENT_READ, self)

    def read(self, waiting: selectors.BaseSelector) -> None:
        assert self.process is not None and self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        self.heard = time.monotonic()
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))
        if not data:
            waiting.unregister(self.process.stdout)
            self.process.stdout.close()
            self._ended(self.process.wait())
            self.start(waiting)

    def _take(self, line: dict[str, Any]) -> None:
        if "begin" in line:
            self.current = line["begin"]
            return
        number = line["number"]
        self.next, self.current = number + 1, None
        self.outcomes[line["outcome"]] += 1
        self.digests[number] = line["digest"]
        if line["grown_mb"] > MAX_GROWTH_MB or line["outcome"] == "memory":
            self._trouble(number, "memory", f"{line['grown_mb']} MB")
        if line["seconds"] > SLOW_SECONDS:
            self._trouble(number, "slow", f"{line['seconds']} s")

    def _ended(self, status: int) -> None:
        if self.current is not None:
            kind = "hang" if status == -9 else "crash"
            self._trouble(self.current, kind, f"exit code {status}")
            self.next = self.current + 1
        elif status != 0:
            last = min(self.next, self.end - 1)
            self._trouble(last, "crash", f"exit code {status} between files or at exit")
            self.next += 1

    def _trouble(self, number: int, kind: str, detail: str) -> None:
        name = file_of(self.source, number)[0]
        self.troubles.append(Trouble(self.source, number, kind, name, detail))

    def check_time(self, waiting: selectors.BaseSelector) -> None:
        alive = self.process is not None and self.process.poll() is None
        if alive and time.monotonic() - self.heard > HANG_SECONDS:
            assert self.process is not None
            self.process.kill()


def keep(trouble: Trouble) -> Path:
    """Keep the file of a trouble, so that it is tried in every run of the tests."""
    PAST.mkdir(exist_ok=True)
    path = PAST / f"{trouble.kind}-{trouble.name}-{trouble.source}-{trouble.number}.bin"
    path.write_bytes(file_of(trouble.source, trouble.number)[1])
    return path


def main(arguments: list[str]) -> int:
    if arguments[0] == "--child":
        child(arguments[1], *map(int, arguments[2:]))
        return 0
    seed, count = int(arguments[0]), int(arguments[1])
    results = run(seed, count)
    print(json.dumps({"tried": results.tried, **results.outcomes}))
    for trouble in results.troubles:
        print(json.dumps(asdict(trouble)))
    return 1 if results.troubles else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
