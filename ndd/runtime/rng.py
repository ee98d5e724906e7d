"""Random generators: random numbers are a function of (seed, draw, sample, element) alone.

An `RNG` is a seed and a position in its Philox stream. Every call of a random op takes the next
seven words of the stream, as upstream does, so that programs stay in step. They key a second
Philox, whose counter is made of sample and element, so results do not depend on threads, modes or
devices.

NOTE [generators in other processes] A generator belongs to the process that set its state. In a
child process the default generator moves to a stream of its own, and so do all others in workers of
torch's `DataLoader`, which would otherwise repeat each other. In other children an explicit
generator stays what it was: there, the user decides. See lineage.py.
"""

from __future__ import annotations

import operator
import os
import re
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ..fusion.graph.shapes import Array
from ..kernels.common import forks
from ..kernels.ir import philox
from . import lineage

WORDS_PER_CALL = 7
_FEW_DRAWS, _BLOCKS_AHEAD = 8, 128  # NOTE [words ahead]
_STATE = re.compile(r"Philox_([0-9A-Fa-f]{16})_([0-9A-Fa-f]{16}):([0-9A-Fa-f]{16})_([0-3])")
_MASK = (1 << 64) - 1


class Draw(NamedTuple):
    """The key and two counter words that give the random numbers of one op call."""

    key: tuple[int, int]
    lane: tuple[int, int]

    def blocks(self, element: Array | int, sample: Array | int) -> tuple[Array, ...]:
        """Four uint32 arrays for elements of samples."""
        return philox.blocks((element, sample, *self.lane), self.key)


class State(NamedTuple):
    """Seed and position of a generator. `RNG(state=…)` also takes its text, `str(state)`."""

    seed: int
    position: int  # words drawn so far

    @staticmethod
    def parse(text: str) -> State:
        found = _STATE.fullmatch(text)
        if found is None:
            raise ValueError(
                f"not the state of a generator: {text[:80]!r}; wanted text such as "
                f"{str(State(1234, 0))!r}"
            )
        seed, high, low = (int(found[k], 16) for k in (1, 2, 3))
        return State(seed, ((high << 64 | low) << 2) | int(found[4]))

    def __str__(self) -> str:
        counter, phase = self.position >> 2, self.position & 3
        return f"Philox_{self.seed:016X}_{counter >> 64:016X}:{counter & _MASK:016X}_{phase}"

    def __repr__(self) -> str:
        return f"State('{self}')"


class RNG:
    """A random generator: give it to random ops as `rng=`.

    >>> import ndd
    >>> rng = ndd.random.RNG(seed=1234)
    >>> same = rng.clone()
    >>> rng() == same()
    True
    >>> rng.set_state(same.get_state())

    Parameters
    ----------
    seed : int, optional
        The seed, of which the low 64 bits are used; a random one if omitted.
    state : State or str, optional
        The state to continue from: another generator's state, or its text.
    """

    def __init__(self, seed: int | None = None, state: State | str | None = None) -> None:
        if seed is not None and state is not None:
            raise ValueError("`seed` and `state` exclude each other")
        self._lock = forks.lock()
        self._is_default = False  # that of a thread
        # NOTE [words ahead] The words of one call take 6 µs in Python, those of the next 73 calls
        # 60 µs in NumPy. They are a function of seed and position, so it does not matter which of
        # both made them. A generator that draws only a few times does not compute words ahead.
        self._ahead: tuple[int, int, list[int]] = 0, 0, []  # seed, position of the first, words
        self._home: lineage.ThisProcess | None = None
        if state is not None:
            self.set_state(state)
        else:
            self.seed = int.from_bytes(os.urandom(8), "little") if seed is None else seed
        self._is_seeded = seed is not None or state is not None

    def __call__(self) -> int:
        """The next random word, from 0 to 2³² - 1."""
        return self._take(1)[0]

    def _take(self, count: int, skipped_after: int = 0) -> list[int]:
        """The next words; `skipped_after` more are taken from the sequence and not computed."""
        with self._lock:
            seed, first = self._here()
            self._position = (first + count + skipped_after) % (1 << 130)
            of, begin, ahead = self._ahead
            at = first - begin
            if of == seed and 0 <= at and at + count <= len(ahead):
                return ahead[at : at + count]
            self._blocks_drawn += 1
            if self._blocks_drawn > _FEW_DRAWS:
                ahead = _words_ahead(seed, first >> 2)
                self._ahead = seed, first & ~3, ahead
                if ahead:
                    return ahead[first & 3 : (first & 3) + count]
        return _words(seed, first, count)

    def _draw(self) -> Draw:
        """The random numbers of one op call."""
        a, b, c, d = self._take(4, WORDS_PER_CALL - 4)
        return Draw((a, b), (c, d))

    @property
    def seed(self) -> int:
        raise AttributeError("seed is write-only")

    @seed.setter
    def seed(self, value: int) -> None:
        self._settle(operator.index(value) & _MASK, 0)

    def advance(self, n: int) -> None:
        """Skip `n` words, as if the generator had been called `n` times."""
        number = operator.index(n)
        if number < 0:
            raise ValueError(f"cannot advance by a negative number, got {number}")
        with self._lock:
            self._position = (self._here()[1] + number) % (1 << 130)

    def jump(self, before: State, after: State) -> bool:
        """Go to the state `after` if this generator is in the state `before`; else return False."""
        with self._lock:
            if self._here() != before:
                return False
            self._seed, self._position = after
            return True

    def clone(self) -> RNG:
        """Another generator that continues the same sequence."""
        return RNG(state=self.get_state())

    @property
    def state(self) -> State:
        """The state; assign it to continue from there."""
        return self.get_state()

    @state.setter
    def state(self, value: State | str) -> None:
        self.set_state(value)

    def get_state(self, *, cuda_stream: Any = None) -> State:
        """The state as an object; `str(state)` is its text. `cuda_stream` has no effect."""
        with self._lock:
            return State(*self._here())

    def set_state(self, value: Any) -> None:
        """Continue from a state, or from its text."""
        if not isinstance(value, State):
            # Upstream's state objects have the same text.
            if not isinstance(value, str) and type(value).__name__ != "State":
                raise TypeError(f"a state or its text is needed, got {type(value).__name__}")
            value = State.parse(str(value))
        self._settle(value.seed, value.position)

    def __repr__(self) -> str:
        return f"RNG(state='{self.get_state()}')"

    # -- processes: see NOTE [generators in other processes] ---------------------------------

    def _settle(self, seed: int, position: int) -> None:
        """Take a state, which belongs to this process from now on."""
        with self._lock:
            self._home = lineage.here()
            self._first_child = self._home.children
            self._seed, self._position = seed, position
            self._is_seeded = True
            self._blocks_drawn = 0  # without words ahead

    def _here(self) -> tuple[int, int]:
        """Seed and position in this process."""
        if self._home is not lineage.here():
            self._arrive()
        return self._seed, self._position

    def _arrive(self) -> None:
        """Move to a stream of its own, if this process got the generator from another one."""
        worker, number = lineage.data_worker(), self._number_of_child()
        seed, position, is_seeded = self._seed, self._position, self._is_seeded
        if self._is_default and worker is not None and not is_seeded:
            seed, position = lineage.derived_seed(worker.seed, 0), 0
        elif self._is_default:
            seed, position = lineage.derived_seed(seed, position, number), 0
        elif worker is not None:
            seed, position = lineage.derived_seed(seed, position, number, worker.id), 0
        self._settle(seed, position)
        self._is_seeded = is_seeded

    def _number_of_child(self) -> int:
        """Which child of the process that set the state this process is."""
        return lineage.here().children - self._first_child

    def __reduce__(self) -> Any:
        with self._lock:
            seed, position = self._here()
            home = lineage.here().token
            return _unpickled, (seed, position, self._is_seeded, self._number_of_child(), home)


def _unpickled(seed: int, position: int, is_seeded: bool, number: int, home: bytes) -> RNG:
    rng = RNG(state=State(seed, position))
    rng._is_seeded = is_seeded
    if home != lineage.here().token:
        rng._home, rng._first_child = None, lineage.here().children - number
    return rng


def _words(seed: int, first: int, count: int) -> list[int]:
    """Words of a sequence from position `first`."""
    key = (seed & 0xFFFFFFFF, seed >> 32)
    words: list[int] = []
    for counter in range(first >> 2, ((first + count - 1) >> 2) + 1):
        split = tuple((counter >> shift) & 0xFFFFFFFF for shift in (0, 32, 64, 96))
        words += philox.block(split, key)
    skipped = first & 3
    return words[skipped : skipped + count]


def _words_ahead(seed: int, counter: int) -> list[int]:
    """The words of many blocks; none where the counter would carry."""
    low, *others = [(counter >> shift) & 0xFFFFFFFF for shift in (0, 32, 64, 96)]
    if low + _BLOCKS_AHEAD > 1 << 32:
        return []
    counters = np.arange(low, low + _BLOCKS_AHEAD, dtype=np.int64)
    found = philox.blocks((counters, *others), (seed & 0xFFFFFFFF, seed >> 32))
    return np.stack(found, axis=1).ravel().tolist()


_thread = threading.local()
_seeded: deque[RNG] = deque(maxlen=1)  # the default generator that was seeded last, in any thread


def get_default_rng() -> RNG:
    """The generator of this thread, which random ops use if none is given.

    >>> import ndd
    >>> ndd.random.get_default_rng() is ndd.random.get_default_rng()
    True
    """
    rng: RNG | None = getattr(_thread, "rng", None)
    if rng is None or not lineage.here().has_settled:
        rng = _thread.rng = _settled_default(rng)
    return rng


def _settled_default(rng: RNG | None) -> RNG:
    """The default generator of a thread that has none, or of a process that begins."""
    inherited = lineage.settle(_seed_of_child)
    if inherited is not None:
        rng = RNG(seed=inherited)
    elif rng is None:
        rng = _of_parent() or RNG()
        if not rng._is_seeded and threading.current_thread() is threading.main_thread():
            rng._home = None  # in a worker of a DataLoader, the seed comes from there
    rng._is_default = True
    return rng


def _of_parent() -> RNG | None:
    """The generator that another thread of the parent had seeded, if this process was forked."""
    if not _seeded or _seeded[-1]._home is lineage.here():
        return None
    return _seeded.pop()


def _seed_of_child() -> int | None:
    """The seed of the default generator of the next child process, if this one has a seed."""
    rng: RNG | None = getattr(_thread, "rng", None)
    if rng is None or not rng._is_seeded:
        rng = _seeded[-1] if _seeded else None
    return None if rng is None else lineage.derived_seed(*rng.get_state(), rng._number_of_child())


@contextmanager
def use_default_rng(rng: RNG | None) -> Iterator[None]:
    """Replace this thread's default generator inside ``with``; None leaves it as it is."""
    before = getattr(_thread, "rng", None)
    if rng is not None:
        _thread.rng = rng
    try:
        yield
    finally:
        _thread.rng = before


def set_seed(seed: int) -> None:
    """Restart the generator of this thread.

    Processes that this thread starts later draw from streams of their own, which are functions of
    the seed. In a worker of torch's `DataLoader`, the seed is that of all workers: each has its own
    stream of it. (`RNG(seed=…)` is the same in all processes.)

    >>> import ndd
    >>> ndd.random.set_seed(1234)
    """
    worker = lineage.data_worker()
    if worker is not None:
        seed = lineage.derived_seed(operator.index(seed) & _MASK, worker.id)
    rng = get_default_rng()
    rng.seed = seed
    _seeded.append(rng)


def draw_of(rng: Any) -> Draw:
    """The random numbers of an op call with the argument `rng`."""
    if rng is None:
        rng = get_default_rng()
    if not isinstance(rng, RNG):
        raise TypeError(f"argument `rng` must be an ndd.random.RNG, got {type(rng).__name__}")
    return rng._draw()


def unit(words: Array) -> Array:
    """Random words as float64 numbers in (0, 1)."""
    return (words.astype(np.float64) + 0.5) * 2.0**-32


def unit_of(word: int) -> float:
    """One random word as a number in (0, 1)."""
    return (word + 0.5) * 2.0**-32


def below(words: Array, count: Array) -> Array:
    """Random words as integers from 0 to count - 1 (count < 2³²)."""
    return ((words.astype(np.uint64) * count.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)
