"""kill -9 while a reader is read: a resumed job reads every sample once, also with another number of ranks.

`python -m tests.faults.killed_readers TFRecord 1 50` kills 50 processes. Each reads epochs with two ranks in step,
notes what it has read, and saves a checkpoint of both ranks after every batch.
"""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import ndd
from tests.faults.child import main, numbers
from tests.faults.kills import forked
from tests.readers.datasets import CASES, Case
from tests.readers.helpers import flat, numbered

SAMPLES, RANKS, BATCH, EPOCHS = 25, 2, 2, 3
# A job is killed so many seconds at most after a batch that is drawn; a batch takes about 3 ms. The clock alone does not
# do: on a busy machine, nearly all jobs would be killed before their first batch.
LONGEST = 0.006
START_SECONDS = 120.0


def _files(folder: Path, count: int) -> dict[str, Any]:
    return {"files": numbered(folder / "files", count)}


def _resized(folder: Path, count: int) -> dict[str, Any]:
    return {**CASES["Video"].make(folder, count), "size": [8, 8]}


_LEVELS = CASES["Video"].number
WHATS: dict[str, Case] = {
    "File": Case("File", _files), **CASES,
    "readers.Video": Case("Video", CASES["Video"].make, number=_LEVELS),
    "readers.VideoResize": Case("VideoResize", _resized, number=_LEVELS),
}  # fmt: skip
_ORDERS: tuple[dict[str, Any], ...] = (
    {},
    {"random_shuffle": True, "seed": 5},
    {"stick_to_shard": True, "prefetch_queue_depth": 3},
    {"shuffle_after_epoch": True},
)


class Job:
    """A data set that ranks read, and the folder of their checkpoints."""

    def __init__(
        self, case: Case, made: dict[str, Any], options: dict[str, Any], folder: Path
    ) -> None:
        self._case, self._made, self._options = case, made, options
        self._pattern = str(folder / "state-{seq:04d}.json")
        self._log = folder / "log"

    def ranks(self, count: int) -> list[Any]:
        options = {"last_batch": "partial", **self._options}
        return [
            self._case.open(ndd, self._made, shard_id=k, num_shards=count, **options)
            for k in range(count)
        ]

    def read(self) -> None:
        """Read all epochs; this is what is killed."""
        readers = self.ranks(RANKS)
        saved = ndd.checkpoint.Checkpoint()
        for k, reader in enumerate(readers):
            saved.register(reader, f"rank {k}")
        with self._log.open("a") as log:
            for _ in range(EPOCHS):
                for items in zip(*(r.next_epoch(BATCH) for r in readers), strict=True):
                    print(json.dumps([self._case.numbers(i) for i in items]), file=log, flush=True)
                    saved.collect()
                    saved.save(self._pattern)
        time.sleep(60)

    def wait_for(self, lines: int) -> None:
        """Wait until so many batches were noted."""
        end = time.monotonic() + START_SECONDS
        while self._count() < lines and time.monotonic() < end:
            time.sleep(0.0005)

    def _count(self) -> int:
        return self._log.read_bytes().count(b"\n") if self._log.exists() else 0

    def batches(self) -> int:
        """How many batches a job reads."""
        return EPOCHS * len(self.ranks(RANKS)[0].next_epoch(BATCH))

    def check(self, ranks: int) -> tuple[int, int]:
        """Resume with a number of ranks; returns the epoch, and the batches of it that were read before."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        seen = [
            json.loads(line) for line in lines if line.endswith("]]")
        ]  # the last one may be cut
        loaded = ndd.checkpoint.Checkpoint()
        states = [None] * RANKS
        epoch = taken = 0
        if any(self._log.parent.glob("state-*.json")):
            loaded.load(self._pattern)
            states = [loaded.get_state(f"rank {k}") for k in range(RANKS)]
            epoch, taken = (states[0].values[key] for key in ("epoch", "taken"))
        length = len(self.ranks(RANKS)[0].next_epoch(BATCH))
        done = epoch * length + -(-taken // BATCH)
        assert done in (len(seen), len(seen) - 1), "the state is older than the last batch but one"
        readers = self.ranks(ranks)
        for k, reader in enumerate(readers):
            if states[0] is not None:
                reader.set_state(str(states[k % RANKS]))
        rest = [self._case.epoch(r, BATCH) for r in readers]
        if ranks == RANKS:
            self._check_same(seen[:done], rest, epoch)
            own = seen[epoch * length : done]
        else:  # nothing was left of an epoch: then other ranks begin with the next one
            own = seen[epoch * length : done] if done < (epoch + 1) * length else []
        self._check_whole(own, rest, ranks)
        return epoch, done - epoch * length

    def _check_same(self, seen: list[Any], rest: list[Any], epoch: int) -> None:
        """Everything comes in the order in which a job reads that nobody kills."""
        for k, reader in enumerate(self.ranks(RANKS)):
            whole = [batch for _ in range(epoch + 1) for batch in self._case.epoch(reader, BATCH)]
            assert [line[k] for line in seen] + rest[k] == whole, f"rank {k} reads something else"

    def _check_whole(self, seen: list[Any], rest: list[Any], ranks: int) -> None:
        """The samples of the epoch: nothing lost; what comes twice keeps ranks in step."""
        before = Counter({n for line in seen for batch in line for n in batch})
        after = Counter(n for part in rest for n in set(flat(part)))
        assert set(before + after) == set(range(SAMPLES)), "samples are lost"
        twice = sum(n - 1 for n in (before + after).values())
        assert twice <= max(ranks, RANKS), f"{twice} samples come twice"
        assert len({len(part) for part in rest}) == 1, "ranks are not in step"


def attack(what: str, seed: int, count: int) -> dict[str, Any]:
    warnings.simplefilter("ignore", DeprecationWarning)  # os.fork with threads
    cases = [*WHATS.values()] if what == "all" else [WHATS[what]]
    counts: Counter[str] = Counter(kills=0)
    with tempfile.TemporaryDirectory() as data:
        folders = [Path(data) / str(k) for k in range(len(cases))]
        for folder_ in folders:
            folder_.mkdir()
        all_made = [c.make(f, SAMPLES) for c, f in zip(cases, folders, strict=True)]
        for number in numbers(count):
            r = random.Random(f"{seed} {number}")
            case, made = cases[number % len(cases)], all_made[number % len(cases)]
            orders = [
                o
                for o in _ORDERS
                if "shuffle_after_epoch" not in o or case.reader not in ("Caffe", "Caffe2")
            ]
            with tempfile.TemporaryDirectory() as folder:
                job = Job(case, made, r.choice(orders), Path(folder))
                lines = r.randint(0, job.batches())
                child = forked(job.read)
                job.wait_for(lines)
                time.sleep(LONGEST * r.random())
                os.kill(child, signal.SIGKILL)
                _, status = os.waitpid(child, 0)
                assert os.WIFSIGNALED(status), f"the job ended with {status:#x}"
                ranks = RANKS if number // len(cases) % 2 == 0 else r.choice((1, 3, 5))
                _, batches = job.check(ranks)
            counts["kills"] += 1
            counts["inside of an epoch"] += batches > 0
            counts["with other ranks"] += ranks != RANKS
    return dict(counts)


if __name__ == "__main__":
    main(attack)
