"""The images of a Decode node, decoded by other processes."""

from __future__ import annotations

import itertools
from collections import deque
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ....fusion.graph.shapes import Array, Shapes
from ....fusion.graph.storage import array_at
from ....kernels.cpu.decode_loop import nvimgcodec_c
from ....kernels.cpu.decode_loop.job import DecodeJob, Pictures
from ....kernels.cpu.decode_loop.structures import HELD, PICTURE
from ....kernels.ir.dtypes import DType
from ..decode import Images
from ..headers import Header
from ..nvimgcodec import nvimgcodec
from .decoder_process import Answers, DecoderProcess, of_this_thread, zeros
from .messages import COLOUR_NAMES, DTYPES, REQUEST, SLOTS, Facts, Reply, Task

# Pictures that a decoder process gets, and gives back, together. One at a time cost 0.15 ms more of
# 1.2, because Python finds its memory out of the caches.
_LARGEST_GROUP = 8
_MOST_BYTES = 1 << 24  # of the pixels of a group; shared memory never shrinks
_NONE = np.zeros(0, np.int64)


class IsolatedImages(Images):
    """Images whose files only decoder processes touch; our own code has checked their headers."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # What was wrong with samples. A file that kills its process must not kill another one.
        self.lost: dict[int, str] = {}
        self._requests: Array | None = None

    def windowed(self, start: Array, size: Array) -> Images:
        images = super().windowed(start, size)
        assert isinstance(images, IsolatedImages)
        images.lost = self.lost
        return images

    def suits_gpu(self, dtype: DType) -> bool:
        return False

    def requests(self) -> Array:
        """What decoder processes are asked, without places in shared memory."""
        if self._requests is None:
            self._requests = self._made_requests()
        return self._requests

    def _made_requests(self) -> Array:
        made = np.zeros(len(self.headers), REQUEST)
        made["task"], made["fast_idct"] = Task.decode, self.fast_idct
        made["colour"] = COLOUR_NAMES.index(self.stored_colour)
        extents = self.headers.shapes(self.stored_colour).rows.copy()
        if self.regions is not None:
            for k, name in enumerate(("top", "left", "bottom", "right")):
                made[name] = self.regions[:, k]
            extents[:, :2] = self.regions[:, 2:] - self.regions[:, :2]
        made["rows"], made["columns"], made["depth"] = extents.T
        plain = self.headers.plain
        made["length"], made["orientation"] = plain.lengths, plain.turns
        made["height"], made["width"], made["channels"] = plain.sizes.T
        itemsizes = np.ones(len(made), np.int64)
        for sample, header in plain.others.items():
            itemsizes[sample] = 0 if header is None else header.dtype.bytes
            if header is not None:
                made["length"][sample] = header.data.size
                for name, value in zip(Facts._fields, Facts.of(header), strict=True):
                    made[name][sample] = value
        made["nbytes"] = extents.prod(axis=1) * itemsizes
        return made

    def native(self, encoded: Array, shapes: Shapes, dtype: DType) -> Pictures | None:
        library = nvimgcodec_c.library(nvimgcodec) if nvimgcodec_c.is_enabled else None
        if library is None or self.colour == "YCbCr" or dtype not in DTYPES:
            return None
        requests = self.requests()
        wanted = requests["nbytes"] == shapes.volumes * dtype.bytes
        wanted &= (requests["dtype"] == DTYPES.index(dtype)) & (requests["nbytes"] > 0)
        rows = np.zeros(len(requests), PICTURE)
        rows["height"], rows["width"], rows["channels"] = shapes.rows.T
        rows["channels"] *= dtype.bytes
        job = partial(IsolatedJob, self, np.flatnonzero(wanted))
        return Pictures(rows, self.colour, self.fast_idct, library, job)

    def held(self, sample: int, shape: tuple[int, ...], dtype: Any) -> int | None:
        """The address of the pixels in memory that a decoder process has written."""
        header = self.headers[sample]
        if header is None or self.colour == "YCbCr" or header.dtype.np != dtype or 0 in shape:
            return None
        try:
            return self._decoded(sample)
        except ValueError as error:
            # Not again by `decode`: a file that kills its process would kill two.
            self._fail(sample, header, error)
            return zeros(dtype.itemsize * prod(shape))

    def _decode_into(self, header: Header, sample: int, out: Array) -> None:
        if out.size:
            out[...] = array_at(self._decoded(sample), out.shape, out.dtype)

    def _decoded(self, sample: int) -> int:
        """The address of pixels, valid until this thread asks for others."""
        if sample not in self.lost:
            process = of_this_thread()
            process.post(self.requests()[[sample]], self.headers.addresses([sample]))
            (address,), (answer,) = process.take()
            if is_done(answer):
                return int(address)
            self.note(sample, answer)
        raise ValueError(self.lost[sample])

    def note(self, sample: int, answer: Reply | str | None) -> None:
        """Note what is wrong with a sample, if that is known."""
        if answer is not None:
            self.lost[sample] = answer if isinstance(answer, str) else answer.text


class IsolatedJob(DecodeJob):
    """A job whose pictures are decoded by the decoder processes of the threads that run it."""

    def __init__(
        self, images: IsolatedImages, wanted: Array, pictures: Pictures, *arguments: Any
    ) -> None:
        super().__init__(pictures, *arguments)
        self._images, self._wanted, self._rows = images, wanted, pictures.rows
        self._numbers = itertools.count()

    def prepare(self, threads: int) -> None:
        nbytes = self._images.requests()["nbytes"][self._wanted].tolist()
        self._bounds = group_bounds(nbytes, threads)

    def run(self, scratch: int) -> None:
        images, requests = self._images, self._images.requests()
        process: DecoderProcess | None = None
        posted: deque[Array] = deque()  # groups of samples that the process has
        again: deque[Array] = deque()  # groups that a process had when it died
        while True:
            while len(posted) < SLOTS:
                samples = again.popleft() if again else self._claim()
                if not len(samples):
                    break
                process = process or of_this_thread()
                process.post(requests[samples], images.headers.addresses(samples))
                posted.append(samples)
            if process is None or not posted:
                return
            samples = posted.popleft()
            addresses, answers = process.take()
            self._run_on(samples, addresses, answers, scratch)
            if not process.is_alive:
                undone = [k for k, answer in enumerate(answers) if answer is None]
                again.extend(group for group in (samples[undone], *posted) if len(group))
                posted.clear()
                process = None

    def _claim(self) -> Array:
        """The next group of samples; empty at the end."""
        bounds, k = self._bounds, next(self._numbers)
        return self._wanted[slice(*bounds[k : k + 2])] if k + 1 < len(bounds) else _NONE

    def _run_on(self, samples: Array, addresses: Array, answers: Answers, scratch: int) -> None:
        """Run the kernels on the pictures that are decoded."""
        rows = self._rows
        rows["data"][samples] = addresses
        rows["length"][samples] = HELD
        for sample, answer in zip(samples.tolist(), answers, strict=True):
            if not is_done(answer):
                rows["length"][sample] = 0
                self._images.note(sample, answer)
        self.run_held(int(samples[0]), int(samples[-1]) + 1, scratch)
        rows["length"][samples] = 0


def is_done(answer: Reply | str | None) -> bool:
    """Whether a picture is decoded."""
    return isinstance(answer, Reply) and answer.is_done


def group_bounds(nbytes: list[int], threads: int) -> list[int]:
    """Bounds of groups of pictures, which get shorter towards the end so that all threads end
    together; the last ones are pairs, unless there are few."""
    count = len(nbytes)
    shortest = max(1, min(2, count // (8 * threads)))
    bounds = [0]
    while (begin := bounds[-1]) < count:
        length = max(shortest, min(_LARGEST_GROUP, (count - begin) // (2 * threads)))
        ends = itertools.accumulate(nbytes[begin : begin + length])
        bounds.append(begin + max(1, sum(end <= _MOST_BYTES for end in ends)))
    return bounds
