"""The images of a Decode node, decoded by other processes."""

from __future__ import annotations

from math import prod
from typing import Any

from ....fusion.graph.shapes import Array, Shapes
from ....kernels.ir.dtypes import DType
from ..decode import Images, Region
from ..headers import Header
from .decoder_process import decoded, zeros
from .messages import COLOUR_NAMES, Request, Task


class IsolatedImages(Images):
    """Images whose files only decoder processes touch; our own code has checked their headers."""

    def suits_gpu(self, dtype: DType) -> bool:
        return False

    def native(self, encoded: Array, shapes: Shapes, dtype: DType) -> None:
        return None

    def held(self, sample: int, shape: tuple[int, ...], dtype: Any) -> int | None:
        """The address of the pixels in memory that a decoder process has written."""
        header = self.headers[sample]
        if header is None or self.colour == "YCbCr" or header.dtype.np != dtype or 0 in shape:
            return None
        request = self._request(header, self.colour, self._region(sample), shape)
        try:
            return decoded(header, request, dtype.itemsize * prod(shape))[0]
        except ValueError as error:
            # Not again by `decode`: a file that kills its process would kill two.
            self._fail(sample, header, error)
            return zeros(dtype.itemsize * prod(shape))

    def _decode_into(self, header: Header, colour: str, region: Region | None, out: Array) -> None:
        if out.size:
            request = self._request(header, colour, region, out.shape)
            pixels = decoded(header, request, out.nbytes)[1]
            out[...] = pixels.view(out.dtype).reshape(out.shape)

    def _request(
        self, header: Header, colour: str, region: Region | None, shape: tuple[int, ...]
    ) -> Request:
        number = COLOUR_NAMES.index(colour)
        whole = (0, 0, -1, -1)
        return Request(Task.decode, 0, 0, 0, number, self.fast_idct, *(region or whole), *shape)
