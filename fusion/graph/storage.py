"""Values in memory: the address of each sample, and NumPy views of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...kernels.common.buffers import POOL
from .shapes import Array, Shapes

if TYPE_CHECKING:
    from .node import Node


class FileMemory(Protocol):
    """Memory of mapped files, which others may change at any time."""

    def protect(self) -> None:
        """Must be called before somebody looks at the memory."""
        ...

    def check(self, addresses: Array, sizes: Array) -> None:
        """Raise the error of the first sample that its file has lost meanwhile."""
        ...


class Held:
    """The owner of memory that arrays or other objects keep alive."""

    __slots__ = ("handed_out", "mapped", "parts")

    def __init__(self, parts: Sequence[Any], mapped: FileMemory | None = None) -> None:
        self.parts, self.mapped = parts, mapped
        self.handed_out = False  # whether somebody outside of this package may write to it


class Joined:
    """Several owners of memory, as one."""

    __slots__ = ("owners",)

    def __init__(self, owners: Sequence[Any]) -> None:
        self.owners = owners

    @property
    def handed_out(self) -> bool:
        return any(getattr(owner, "handed_out", False) for owner in self.owners)

    @handed_out.setter
    def handed_out(self, value: bool) -> None:
        for owner in self.owners:
            if hasattr(owner, "handed_out"):
                owner.handed_out = value

    @property
    def mapped(self) -> FileMemory | None:
        found = [m for owner in self.owners if (m := getattr(owner, "mapped", None)) is not None]
        return _SeveralFiles(found) if len(found) > 1 else next(iter(found), None)


class _SeveralFiles:
    """Mapped memory of several batches, whose samples are side by side in another one."""

    def __init__(self, parts: Sequence[FileMemory]) -> None:
        self._parts = parts

    def protect(self) -> None:
        self._parts[0].protect()

    def check(self, addresses: Array, sizes: Array) -> None:
        for part in self._parts:
            part.check(addresses, sizes)


class Storage:
    """A value in memory: one address per sample.

    `strides` (in elements) is None if every sample is contiguous. `owner` keeps the memory alive.
    """

    __slots__ = ("_external", "addresses", "copied", "dense", "owner", "readonly", "strides")

    def __init__(
        self,
        addresses: Array,
        owner: Any,
        strides: Array | None = None,
        dense: bool = False,
        external: bool = False,
    ) -> None:
        self.addresses = addresses
        self.owner = owner
        self.strides = strides
        self.dense = dense  # samples lie one after the other without gaps
        self._external = external
        self.readonly = False  # NumPy views of the memory must not be writable
        self.copied: Storage | None = None  # a copy of mapped files, see core/mapped_inputs.py

    @property
    def external(self) -> bool:
        """Whether the memory may change at any time: it is not ours, or was handed to the user."""
        return self._external or getattr(self.owner, "handed_out", False)

    def owners(self) -> list[Any]:
        """Everything that owns some of the memory."""
        found = [self.owner]
        for owner in found:
            if isinstance(owner, Joined):
                found.extend(owner.owners)
        return found

    def share_flags(self, other: Storage) -> Storage:
        """Take over the flags of another storage over the same memory; returns itself."""
        self._external, self.readonly = other._external, other.readonly
        return self


def allocate(shapes: Shapes, itemsize: int, take: Callable[[int], Any] | None = None) -> Storage:
    """Allocate a batch: dense if all samples have the same shape, else each sample is aligned."""
    offsets, nbytes, dense = shapes.packed(itemsize)
    if take is None:
        buffer = POOL.take(nbytes)
        return Storage(buffer.at(offsets), buffer, None, dense)
    memory = take(nbytes)
    return Storage(memory.address + offsets, memory, None, dense)


def nothing() -> Storage:
    """The memory of a batch without samples."""
    return Storage(np.zeros(0, np.int64), Held([]), None, dense=False)


def address_of(table: Array) -> int:
    """The address of the first element of a NumPy array."""
    return table.__array_interface__["data"][0]  # type: ignore[no-any-return]


def contiguous(source: Node) -> Storage:
    """A packed copy of strided host memory."""
    storage = source.stored
    result = allocate(source.shapes, source.dtype.bytes)
    for s in range(source.count):
        as_array(result, source, s)[...] = as_array(storage, source, s)
    return result


def as_array(storage: Storage, node: Node, sample: int) -> Array:
    """A NumPy view of one sample in host memory; it keeps the memory alive."""
    shape = node.shapes.tuples[sample if node.count > 1 else 0]
    dtype = node.dtype.np
    strides = None
    if storage.strides is not None:
        strides = tuple(int(s) * dtype.itemsize for s in storage.strides[sample])
    return array_at(int(storage.addresses[sample]), shape, dtype, strides, storage)


def array_at(
    address: int, shape: Any, dtype: Any, strides: Any = None, of: Storage | None = None
) -> Array:
    """A NumPy view of memory at an address; it keeps the owner of `of` alive."""
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.asarray(_Memory(address, shape, dtype, strides, of))


class _Memory:
    """Address, shape and owner as an object that NumPy can view (`__array_interface__`)."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(
        self, address: int, shape: Any, dtype: Any, strides: Any, of: Storage | None
    ) -> None:
        self.owner = None if of is None else of.owner
        readonly = of is not None and of.readonly
        self.__array_interface__ = {
            "version": 3, "shape": shape, "typestr": dtype.str, "data": (address, readonly),
            "strides": strides,
        }  # fmt: skip
