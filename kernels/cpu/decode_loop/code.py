"""The shared structures (structures.py) → LLVM source of the loop that works on them.

We write LLVM instructions directly, because LLVM compiles them in a few milliseconds, while Numba
would take most of a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import Array, Structure, _Pointer, sizeof
from typing import Any

from llvmlite import ir

from .nvimgcodec_c import SUCCESS
from .structures import FREED_BY, HELD, Decoder, Job

_i32, _i64 = ir.IntType(32), ir.IntType(64)
NAME = "ndd_sample_loop"


def source() -> str:
    """Source of `status run(ignored, ignored, job, decoder, scratch)`, called like a kernel."""
    module = ir.Module(NAME)
    function = ir.Function(module, ir.FunctionType(_i32, [_i64] * 5), NAME)
    _Writer(function).loop()
    return str(module)


class NativeRecord:
    """A structure, array or number in memory, whose fields the generated code accesses by name.

    The offset and the size of a field come from the same ctypes class that Python fills.
    """

    def __init__(self, builder: ir.IRBuilder, kind: Any, address: Any) -> None:
        self.builder = builder
        self.kind = kind
        self.address = address

    def at(self, key: Any) -> NativeRecord:
        """The record of a field, by name, or of an element, by index."""
        if isinstance(key, str):
            kind, offset = dict(self.kind._fields_)[key], _i64(getattr(self.kind, key).offset)
        else:
            kind, index = self.kind._type_, _i64(key) if isinstance(key, int) else key
            offset = self.builder.mul(index, _i64(sizeof(kind)))
        return NativeRecord(self.builder, kind, self.builder.add(self.address, offset))

    @property
    def pointer(self) -> Any:
        number = ir.IntType(8 * sizeof(self.kind))
        return self.builder.inttoptr(self.address, number.as_pointer())

    def __getitem__(self, key: Any) -> Any:
        """Load a number; return a structure, an array or the target of a pointer as a record."""
        part = self.at(key)
        if issubclass(part.kind, (Structure, Array)):
            return part
        value = self.builder.load(part.pointer)
        return (
            NativeRecord(self.builder, part.kind, value)
            if issubclass(part.kind, _Pointer)
            else value
        )

    def __setitem__(self, key: Any, value: Any) -> None:
        """Store a number, truncated to the size of the field."""
        place = self.at(key).pointer
        if value.type.width > place.type.pointee.width:
            value = self.builder.trunc(value, place.type.pointee)
        self.builder.store(value, place)


class _Writer:
    """Writes the function, from top to bottom."""

    def __init__(self, function: ir.Function) -> None:
        self.builder = ir.IRBuilder(function.append_basic_block())
        job, decoder, self.scratch = function.args[2:]
        self.job = NativeRecord(self.builder, Job, job)
        self.decoder = NativeRecord(self.builder, Decoder, decoder)
        self.status = self.builder.alloca(_i32)  # of the current picture: 0 until a call fails
        ignored = self.builder.alloca(ir.ArrayType(_i64, 2))
        self.ignored = self.builder.ptrtoint(ignored, _i64)

    # -- small things ----------------------------------------------------------------------------

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a C function and return its status; records are passed by address."""
        values = [a.address if isinstance(a, NativeRecord) else a for a in arguments]
        module = self.builder.module
        function = module.globals.get(name)
        if function is None:
            kind = ir.FunctionType(_i32, [value.type for value in values])
            function = ir.Function(module, kind, name)
        return self.builder.call(function, values)

    def attempt(self, name: str, *arguments: Any) -> None:
        """Call a function of nvimgcodec and keep its status, unless an earlier call has failed."""
        with self.if_good():
            self.builder.store(self.call(f"nvimgcodec{name}", *arguments), self.status)

    def if_good(self) -> Any:
        status = self.builder.load(self.status)
        return self.builder.if_then(self.builder.icmp_signed("==", status, _i32(0)))

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
        """Claim a sample, decode it and run its kernels, until no sample is left."""
        b, job = self.builder, self.job
        head, body, end = (b.append_basic_block() for _ in range(3))
        b.branch(head)
        b.position_at_end(head)
        sample = b.atomic_rmw("add", job.at("next").pointer, _i64(1), "monotonic")
        b.cbranch(b.icmp_signed("<", sample, job["count"]), body, end)
        b.position_at_end(body)
        picture = job["pictures"][sample]
        is_held = b.icmp_signed("==", picture["length"], _i64(HELD))
        with b.if_else(is_held) as (then, otherwise):
            with then:
                self.take(picture)
            with otherwise:
                self.decode(picture)
        in_place = b.sub(picture["data"], picture["target"])
        pixels = b.select(is_held, in_place, self.scratch)
        with self.if_good():
            with self.counted(job["kernel_count"]) as k:
                self.run(job["kernels"][k], sample, pixels)
            picture["done"] = _i64(1)
        # If decoding threads occupy all cores, the thread that delivers a batch or builds the next
        # one waits for the end of a time slice, 4 ms. (Batches of 8 took 1.18 times as long.)
        with self.if_not_zero(job["yields"]):
            self.call("sched_yield")
        b.branch(head)
        b.position_at_end(end)
        b.ret(_i32(0))

    def run(self, kernel: NativeRecord, sample: Any, pixels: Any) -> None:
        """Make the addresses in the sample's row absolute, then run a kernel on it.

        Those of the decoded picture are relative to `pixels`.
        """
        b, table = self.builder, kernel["table"]
        first, own = b.mul(sample, kernel["width"]), kernel["scratch"]
        for columns, base in (("moved", self.scratch), ("pixels", pixels)):
            with self.counted(kernel[f"{columns}_count"]) as k:
                cell = b.add(first, kernel[columns][k])
                table[cell] = b.add(table[cell], base)
        with b.if_then(b.icmp_signed(">=", own, _i64(0))):
            table[b.add(first, own)] = b.add(self.scratch, self.job["between"])
        kind = ir.FunctionType(_i32, [_i64] * 5).as_pointer()
        outs = self.ignored, b.add(self.ignored, _i64(8))
        rows = table.address, sample, b.add(sample, _i64(1))
        b.call(b.inttoptr(kernel["entry"], kind), [*outs, *rows])

    def take(self, picture: NativeRecord) -> None:
        """Copy the pixels of a held picture to its target, unless kernels read them in place."""
        b = self.builder
        b.store(_i32(0), self.status)
        with b.if_then(b.icmp_signed("==", b.zext(self.job["in_scratch"], _i64), _i64(0))):
            size = b.mul(b.mul(picture["height"], picture["width"]), picture["channels"])
            self.call("memcpy", picture["target"], picture["data"], size)

    def decode(self, picture: NativeRecord) -> None:
        """Decode a picture, or a region of it, into its target memory."""
        b, own = self.builder, self.decoder
        data, length = picture["data"], picture["length"]
        b.store(_i32(-1), self.status)
        with self.if_not_zero(length):
            instance, *objects = own["instance"], *map(own.at, ("stream", "part", "image"))
            stream, part, image = objects
            b.store(_i32(0), self.status)
            self.describe(picture)
            self.attempt("CodeStreamCreateFromHostMem", instance, stream, data, length, _i64(0))
            is_part = b.icmp_signed(">", picture["bottom"], _i64(0))
            with b.if_then(is_part):
                self.attempt("CodeStreamGetSubCodeStream", own["stream"], part, own["view"])
            self.attempt("ImageCreate", instance, image, own["info"])
            wanted = b.select(is_part, part.address, stream.address)
            how = _i32(1), own["params"], own.at("future")
            self.attempt("DecoderDecode", own["decoder"], wanted, image, *how)
            with self.if_good():
                self.wait()
            with self.if_not_zero(b.load(self.status)):
                self.forget()

    def describe(self, picture: NativeRecord) -> None:
        """Fill nvimgcodec's structures: what to decode, and into which memory."""
        b, job, info = self.builder, self.job, self.decoder["info"]
        plane, region = info["planes"][0], self.decoder["view"]["region"]
        for field in ("height", "width", "channels"):
            plane[field] = picture[field]
        plane["row_stride"] = b.mul(picture["width"], picture["channels"])
        info["spec"], info["format"] = job["spec"], job["format"]
        region["start"][0], region["start"][1] = picture["top"], picture["left"]
        region["end"][0], region["end"][1] = picture["bottom"], picture["right"]
        start = b.mul(self.scratch, b.zext(job["in_scratch"], _i64))
        info["buffer"] = b.add(picture["target"], start)

    def wait(self) -> None:
        """Wait until the picture is decoded, and store whether that failed."""
        b, own = self.builder, self.decoder
        future, result = own["future"], own.at("result")
        self.attempt("FutureWaitForAll", future)
        self.attempt("FutureGetProcessingStatus", future, result, own.at("result_count"))
        with self.if_good():
            failed = b.icmp_signed("!=", own["result"], _i32(SUCCESS))
            b.store(b.sext(failed, _i32), self.status)
        self.call("nvimgcodecFutureDestroy", future)

    def forget(self) -> None:
        """Destroy the reusable objects after a failure, because their state is unknown."""
        for field, free in FREED_BY.items():
            with self.if_not_zero(self.decoder[field]):
                self.call(f"nvimgcodec{free}", self.decoder[field])
                self.decoder[field] = _i64(0)
