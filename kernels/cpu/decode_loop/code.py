"""The code of kernels/cpu/decode_loop/structures.py, as LLVM's instructions.

Not by Numba, which would take most of a second for what LLVM compiles in a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from .structures import Job, Kernel, Own, Picture

_i32, _i64 = ir.IntType(32), ir.IntType(64)
NAME = "ndd_sample_loop"
SUCCESS = 1  # NVIMGCODEC_PROCESSING_STATUS_SUCCESS


def source() -> str:
    """`status run(ignored, ignored, job, own, scratch)`, called as a kernel is."""
    module = ir.Module(NAME)
    function = ir.Function(module, ir.FunctionType(_i32, [_i64] * 5), NAME)
    _Writer(function).loop()
    return str(module)


class _Writer:
    """Writes the function, from top to bottom."""

    def __init__(self, function: ir.Function) -> None:
        self.builder = ir.IRBuilder(function.append_basic_block())
        self.job, self.own, self.scratch = function.args[2:]
        self.status = self.builder.alloca(_i32)  # of the picture at hand: 0 as long as all is well
        ignored = self.builder.alloca(ir.ArrayType(_i64, 2))
        self.ignored = self.builder.ptrtoint(ignored, _i64)

    # -- small things ----------------------------------------------------------------------------

    def pointer(self, block: Any, cell: Any, kind: ir.Type = _i64) -> Any:
        cell = _i64(int(cell)) if isinstance(cell, int) else cell
        return self.builder.gep(self.builder.inttoptr(block, kind.as_pointer()), [cell])

    def cell(self, block: Any, cell: Any) -> Any:
        return self.builder.load(self.pointer(block, cell))

    def put(self, block: Any, cell: Any, value: Any) -> None:
        self.builder.store(value, self.pointer(block, cell))

    def put_i32(self, block: Any, cell: int, value: Any) -> None:
        self.builder.store(self.builder.trunc(value, _i32), self.pointer(block, cell, _i32))

    def address(self, cell: Own) -> Any:
        """Where a cell of the thread's own is."""
        return self.builder.add(self.own, _i64(8 * cell))

    def call(self, function: Any, *arguments: Any) -> Any:
        """The status of a C function that takes integers and pointers."""
        kind = ir.FunctionType(_i32, [_i64] * len(arguments))
        return self.builder.call(self.builder.inttoptr(function, kind.as_pointer()), arguments)

    def use(self, cell: Own, *arguments: Any) -> Any:
        """Call one of nvimgcodec's functions."""
        return self.call(self.cell(self.own, cell), *arguments)

    def attempt(self, cell: Own, *arguments: Any) -> None:
        self.builder.store(self.use(cell, *arguments), self.status)

    @contextmanager
    def if_good(self) -> Iterator[None]:
        zero = self.builder.icmp_signed("==", self.builder.load(self.status), _i32(0))
        with self.builder.if_then(zero):
            yield

    def if_not_zero(self, value: Any) -> Any:
        return self.builder.if_then(self.builder.icmp_signed("!=", value, value.type(0)))

    @contextmanager
    def counted(self, count: Any) -> Iterator[Any]:
        """A loop over 0 … count - 1."""
        b = self.builder
        before, head = b.block, b.append_basic_block()
        body, end = b.append_basic_block(), b.append_basic_block()
        b.branch(head)
        b.position_at_end(head)
        k = b.phi(_i64)
        k.add_incoming(_i64(0), before)
        b.cbranch(b.icmp_signed("<", k, count), body, end)
        b.position_at_end(body)
        yield k
        k.add_incoming(b.add(k, _i64(1)), b.block)
        b.branch(head)
        b.position_at_end(end)

    # -- the loop --------------------------------------------------------------------------------

    def loop(self) -> None:
        """Claim a sample, decode it, run the kernels; until none is left."""
        b = self.builder
        head, body, end = (b.append_basic_block() for _ in range(3))
        b.branch(head)
        b.position_at_end(head)
        sample = b.atomic_rmw("add", self.pointer(self.job, Job.next), _i64(1), "monotonic")
        b.cbranch(b.icmp_signed("<", sample, self.cell(self.job, Job.count)), body, end)
        b.position_at_end(body)
        self.decode(sample)
        with self.if_good():
            kernels = b.add(self.job, _i64(8 * len(Job)))
            with self.counted(self.cell(self.job, Job.kernels)) as k:
                self.run(b.add(kernels, b.mul(k, _i64(8 * len(Kernel)))), sample)
            self.put(self.cell(self.job, Job.done), sample, _i64(1))
        # Where threads have all cores, one that has to hand over a batch or to make the next one
        # would wait until another's time slice ends: 4 ms. (Batches of 8 took 1.18 times as long.)
        self.use(Own.give_way)
        b.branch(head)
        b.position_at_end(end)
        b.ret(_i32(0))

    def run(self, kernel: Any, sample: Any) -> None:
        """A kernel; the addresses in the sample's row become absolute first."""
        b = self.builder
        table = self.cell(kernel, Kernel.table)
        width = b.mul(self.cell(kernel, Kernel.width), _i64(8))
        row = b.add(table, b.mul(sample, width))
        with self.counted(self.cell(kernel, Kernel.moved_count)) as k:
            column = self.cell(self.cell(kernel, Kernel.moved), k)
            self.put(row, column, b.add(self.cell(row, column), self.scratch))
        own = self.cell(kernel, Kernel.scratch)
        with b.if_then(b.icmp_signed(">=", own, _i64(0))):
            self.put(row, own, b.add(self.scratch, self.cell(self.job, Job.between)))
        end = b.add(sample, _i64(1))
        entry = self.cell(kernel, Kernel.entry)
        self.call(entry, self.ignored, b.add(self.ignored, _i64(8)), table, sample, end)

    def decode(self, sample: Any) -> None:
        """Decode a picture, or a part of it, into its place."""
        b = self.builder
        places = b.mul(sample, _i64(8 * len(Picture)))
        picture = b.add(self.cell(self.job, Job.pictures), places)
        length = self.cell(picture, Picture.length)
        b.store(_i32(-1), self.status)
        with self.if_not_zero(length):
            self.describe(picture, sample)
            data, instance = self.cell(picture, Picture.data), self.cell(self.own, Own.instance)
            stream = self.address(Own.stream)
            self.attempt(Own.new_stream, instance, stream, data, length, _i64(0))
            is_part = b.icmp_signed(">", self.cell(picture, Picture.bottom), _i64(0))
            with self.if_good(), b.if_then(is_part):
                whole, view = self.cell(self.own, Own.stream), self.cell(self.own, Own.view)
                self.attempt(Own.new_part, whole, self.address(Own.part), view)
            image, info = self.address(Own.image), self.cell(self.own, Own.info)
            with self.if_good():
                self.attempt(Own.new_image, instance, image, info)
            with self.if_good():
                decoder, params = self.cell(self.own, Own.decoder), self.cell(self.own, Own.params)
                wanted = b.select(is_part, self.address(Own.part), stream)
                future = self.address(Own.future)
                self.attempt(Own.decode, decoder, wanted, image, _i64(1), params, future)
                with self.if_good():
                    self.wait()
            with self.if_not_zero(b.load(self.status)):
                self.forget()

    def describe(self, picture: Any, sample: Any) -> None:
        """Fill the structures that tell nvimgcodec what to decode, and where to."""
        b = self.builder
        numbers = {
            Own.at_height: self.cell(picture, Picture.height),
            Own.at_width: self.cell(picture, Picture.width),
            Own.at_channels: self.cell(picture, Picture.channels),
            Own.at_spec: self.cell(self.job, Job.spec),
            Own.at_format: self.cell(self.job, Job.format),
        }
        for at, number in numbers.items():
            self.put_i32(self.cell(self.own, at), 0, number)
        for at, (row, column) in {
            Own.at_start: (Picture.top, Picture.left), Own.at_end: (Picture.bottom, Picture.right),
        }.items():  # fmt: skip
            self.put_i32(self.cell(self.own, at), 0, self.cell(picture, row))
            self.put_i32(self.cell(self.own, at), 1, self.cell(picture, column))
        stride = b.mul(numbers[Own.at_width], numbers[Own.at_channels])
        self.put(self.cell(self.own, Own.at_stride), 0, stride)
        target = self.cell(self.cell(self.job, Job.targets), sample)
        moved = b.mul(self.scratch, self.cell(self.job, Job.in_scratch))
        self.put(self.cell(self.own, Own.at_buffer), 0, b.add(target, moved))

    def wait(self) -> None:
        """Wait for the picture that is being decoded, and ask how it went."""
        b = self.builder
        future = self.cell(self.own, Own.future)
        self.attempt(Own.wait, future)
        with self.if_good():
            self.attempt(Own.ask, future, self.address(Own.result), self.address(Own.results))
        with self.if_good():
            result = b.load(self.pointer(self.own, 2 * Own.result, _i32))
            failed = b.icmp_signed("!=", result, _i32(SUCCESS))
            b.store(b.sext(failed, _i32), self.status)
        self.use(Own.free_future, future)

    def forget(self) -> None:
        """After a failure nobody knows what has become of the objects that are used again."""
        for cell, free in (
            (Own.part, Own.free_stream), (Own.stream, Own.free_stream), (Own.image, Own.free_image),
        ):  # fmt: skip
            with self.if_not_zero(self.cell(self.own, cell)):
                self.use(free, self.cell(self.own, cell))
                self.put(self.own, cell, _i64(0))
