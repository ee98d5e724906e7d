"""The images of a Decode node, decoded by other processes."""

from __future__ import annotations

from math import prod
from typing import Any

from ....fusion.graph.shapes import Array, Shapes
from ....kernels.ir.dtypes import DType
from ..decode import Images
from ..headers import Header
from .decoder_process import WantedPicture, begin_run, header_of, next_of, zeros
from .messages import COLOUR_NAMES, Request, Task

# Bytes of pixels up to which pictures form a run; shared memory never shrinks.
_LONGEST_RUN = 1 << 25


class IsolatedImages(Images):
    """Images whose files only decoder processes touch; our own code has checked their headers."""

    # Only the last group of a run is not decoded while the caller works on the one before. With
    # runs of 8, a photo took 3 % more CPU time than with 16, and with 32 no less (`python -m bench
    # isolate`).
    run_length = 16

    def suits_gpu(self, dtype: DType) -> bool:
        return False

    def native(self, encoded: Array, shapes: Shapes, dtype: DType) -> None:
        return None

    def prepare(self, begin: int, end: int) -> None:
        pictures, total = [], 0
        # More might not fit into the pipe, where each process would wait for the other.
        for sample in range(begin, min(end, begin + self.run_length)):
            header = self.headers[sample]
            if header is not None:
                picture = self._picture(sample, header)
                total += picture.nbytes
                if total > _LONGEST_RUN:
                    break
                if picture.nbytes:
                    pictures.append(picture)
        if pictures:
            begin_run(self, pictures)

    def held(self, sample: int, shape: tuple[int, ...], dtype: Any) -> int | None:
        """The address of the pixels in memory that a decoder process has written."""
        header = self._header(sample)
        if header is None or self.colour == "YCbCr" or header.dtype.np != dtype or 0 in shape:
            return None
        try:
            return next_of(self, sample, self._picture)[0]
        except ValueError as error:
            # Not again by `decode`: a file that kills its process would kill two.
            self._fail(sample, header, error)
            return zeros(dtype.itemsize * prod(shape))

    def _decode_into(self, header: Header, sample: int, out: Array) -> None:
        if out.size:
            pixels = next_of(self, sample, self._picture)[1]
            out[...] = pixels.view(out.dtype).reshape(out.shape)

    def _header(self, sample: int) -> Header | None:
        return header_of(self, sample) or self.headers[sample]

    def _picture(self, sample: int, header: Header | None = None) -> WantedPicture:
        header, colour = header or self.headers[sample], self.stored_colour
        assert header is not None
        shape, region = header.shape(colour), self._region(sample)
        if region is not None:
            shape = (region[2] - region[0], region[3] - region[1], shape[2])
        number, place = COLOUR_NAMES.index(colour), region or (0, 0, -1, -1)
        request = Request(Task.decode, 0, 0, 0, 0, 0, number, self.fast_idct, *place, *shape)
        return WantedPicture(sample, header, request)
