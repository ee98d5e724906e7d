"""A parsed PTX kernel → LLVM assembly: a function for each stretch without branches.

A function runs one thread through its segment and returns the number of the next one. Registers
that live in one segment only are plain values; all others have a slot of 8 bytes in the memory of
the thread. Bits are kept as integers and become floats where an operation needs them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.emulator.ptx import WIDTHS, Entry, Instruction, UnknownPtx

PLAIN, BARRIER, REDUX, SHUFFLE, VOTE = range(5)
REDUCTIONS = {
    "add": 0,
    "min.s32": 1,
    "max.s32": 2,
    "min.u32": 3,
    "max.u32": 4,
    "and": 5,
    "or": 6,
    "xor": 7,
}
SHUFFLES = {"up": 0, "down": 1, "bfly": 2, "idx": 3}
VOTES = {"ballot": 0, "any": 1, "all": 2}
SPECIAL = {
    f"%{name}.{axis}": offset + 4 * k
    for name, offset in (("tid", 8), ("ntid", 20), ("ctaid", 32), ("nctaid", 44))
    for k, axis in enumerate("xyz")
}
FLOATS = {"f16": ("half", 16), "f32": ("float", 32), "f64": ("double", 64)}
PACKED = re.compile(r"(f16|bf16|f32|s16|u16)x2")
COMPARISONS = {  # of PTX → of LLVM: signed, unsigned, float
    "eq": ("eq", "eq", "oeq"), "ne": ("ne", "ne", "one"), "lt": ("slt", "ult", "olt"),
    "le": ("sle", "ule", "ole"), "gt": ("sgt", "ugt", "ogt"), "ge": ("sge", "uge", "oge"),
    "equ": ("", "", "ueq"), "neu": ("", "", "une"), "ltu": ("", "", "ult"), "leu": ("", "", "ule"),
    "gtu": ("", "", "ugt"), "geu": ("", "", "uge"), "num": ("", "", "ord"), "nan": ("", "", "uno"),
    "lo": ("", "ult", ""), "ls": ("", "ule", ""), "hi": ("", "ugt", ""), "hs": ("", "uge", ""),
}  # fmt: skip
# Orderings and cache hints that change nothing where one thread runs after another.
HINTS = {
    "relaxed", "acquire", "release", "acq_rel", "weak", "volatile", "sys", "gpu", "cta", "nc", "ca", "cg", "cs", "wb",
    "L1_evict_last", "L1_evict_first", "L1_no_allocate", "L2_evict_last", "L2_evict_first", "aligned",
}  # fmt: skip
PRELUDE = """
declare ptr @emu_global(i64, i32, i32, i32)
declare ptr @emu_shared(i64, i32, i32, i32)
declare void @emu_trap()
declare i64 @emu_sdiv(i64, i64)
declare i64 @emu_srem(i64, i64)
declare i64 @emu_udiv(i64, i64)
declare i64 @emu_urem(i64, i64)
declare float @emu_min_f32(float, float)
declare float @emu_max_f32(float, float)
declare double @emu_min_f64(double, double)
declare double @emu_max_f64(double, double)
declare float @emu_flush(float)
declare double @emu_round(double, i32)
declare i64 @emu_to_signed(double, i32)
declare i64 @emu_to_unsigned(double, i32)
declare i32 @emu_prmt(i32, i32, i32)
declare i64 @emu_bfe(i64, i32, i32, i32, i32)
declare i64 @emu_bfi(i64, i64, i32, i32, i32)
declare i32 @emu_lop3(i32, i32, i32, i32)
declare i16 @emu_to_bf16(float)
declare float @llvm.fma.f32(float, float, float)
declare double @llvm.fma.f64(double, double, double)
declare float @llvm.sqrt.f32(float)
declare double @llvm.sqrt.f64(double)
declare i32 @llvm.ctpop.i32(i32)
declare i64 @llvm.ctpop.i64(i64)
declare i32 @llvm.ctlz.i32(i32, i1)
declare i64 @llvm.ctlz.i64(i64, i1)
declare i32 @llvm.bitreverse.i32(i32)
"""


@dataclass
class Segment:
    """Instructions that a thread runs without a branch, or one in which threads meet."""

    first: int
    body: list[Instruction] = field(default_factory=list)
    kind: int = PLAIN
    operation: int = 0
    next: int = -1
    operands: list[int] = field(default_factory=lambda: [1] * 6)


@dataclass
class Translated:
    """LLVM assembly of the segments, and what the machine must know about them."""

    assembly: str
    segments: list[Segment]
    n_slots: int
    lines: list[int]  # of each access to memory


def translate(entry: Entry) -> Translated:
    """Translate a kernel; raise `UnknownPtx` for an instruction that is not known."""
    return _Kernel(entry).translated


def _registers(text: str) -> list[str]:
    return re.findall(r"%?[A-Za-z_$][\w$.]*", text)


class _Kernel:
    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.lines: list[int] = []
        self.segments = self._cut()
        self.starts = {s.first: k for k, s in enumerate(self.segments)}
        self.slots = self._place()
        functions = [
            _Function(self, k, s).text for k, s in enumerate(self.segments) if s.kind == PLAIN
        ]
        for k, segment in enumerate(self.segments):
            if segment.kind != PLAIN:
                self._meeting(segment, k)
        text = PRELUDE + "\n".join(functions)
        self.translated = Translated(text, self.segments, len(self.slots), self.lines)

    def _cut(self) -> list[Segment]:
        body, starts = self.entry.body, {0, *self.entry.labels.values()}
        for k, instruction in enumerate(body):
            if _ends(instruction) or _meets(instruction):
                starts.add(k + 1)
            if _meets(instruction):
                starts.add(k)
        edges = sorted(s for s in starts if s < len(body)) + [len(body)]
        kinds = [BARRIER if _meets(body[a]) else PLAIN for a in edges[:-1]]
        return [Segment(a, body[a:b], k) for a, b, k in zip(edges, edges[1:], kinds)]

    def _place(self) -> dict[str, int]:
        """A slot for each register that more than one segment uses, or that a loop carries."""
        homes: dict[str, set[int]] = {}
        carried: set[str] = set()
        for k, segment in enumerate(self.segments):
            defined: set[str] = set()
            for instruction in segment.body:
                reads, writes = self.uses(instruction)
                carried |= reads - defined
                if instruction.guard:
                    carried |= writes - defined
                if segment.kind != PLAIN:
                    carried |= reads | writes
                defined |= writes
                for name in reads | writes:
                    homes.setdefault(name, set()).add(k)
        kept = [n for n, where in homes.items() if len(where) > 1 or n in carried]
        return {name: k for k, name in enumerate(sorted(kept))}

    def uses(self, instruction: Instruction) -> tuple[set[str], set[str]]:
        """Registers that an instruction reads, and those that it writes."""
        widths = self.entry.widths
        found = [[r for r in _registers(o) if r in widths] for o in instruction.operands]
        has_result = instruction.parts[0] not in (
            "st",
            "red",
            "bra",
            "bar",
            "barrier",
            "ret",
            "exit",
            "trap",
        )
        writes = set(found[0]) if has_result and found else set()
        reads = {r for regs in found[1 if has_result else 0 :] for r in regs}
        if instruction.guard:
            reads.add(instruction.guard)
        return reads, writes

    def _meeting(self, segment: Segment, index: int) -> None:
        (instruction,) = segment.body
        parts, operands = instruction.parts, instruction.operands
        if instruction.guard:
            raise UnknownPtx(f"a guarded meeting: {instruction.text}")
        segment.next = index + 1
        if parts[0] in ("bar", "barrier"):
            if operands not in (("0",), ()):
                raise UnknownPtx(instruction.text)
            segment.kind = BARRIER
            return
        result, _, predicate = operands[0].partition("|")
        segment.operands[0] = self.slots[result] << 1
        segment.operands[5] = self.slots[predicate] << 1 if predicate else -2
        if parts[0] == "redux":
            segment.kind = REDUX
            name = parts[2] if parts[2] in REDUCTIONS else ".".join(parts[2:4])
            segment.operation = REDUCTIONS[name]
            segment.operands[1], segment.operands[4] = map(self._meeting_operand, operands[1:3])
        elif parts[0] == "shfl":
            segment.kind = SHUFFLE
            segment.operation = SHUFFLES[parts[2]]
            segment.operands[1:5] = [self._meeting_operand(o) for o in operands[1:5]]
        else:
            segment.kind = VOTE
            segment.operation = VOTES[parts[2]]
            segment.operands[1], segment.operands[4] = map(self._meeting_operand, operands[1:3])

    def _meeting_operand(self, operand: str) -> int:
        if operand in self.slots:
            return self.slots[operand] << 1
        return (int(operand.rstrip("U"), 0) & 0xFFFFFFFF) << 1 | 1


def _ends(instruction: Instruction) -> bool:
    return instruction.parts[0] in ("bra", "ret", "exit")


def _meets(instruction: Instruction) -> bool:
    parts = instruction.parts
    if parts[:2] == ("bar", "warp"):
        return False
    return parts[0] in ("bar", "barrier", "redux", "shfl", "vote")


class _Function:
    """The text of one segment's function."""

    def __init__(self, kernel: _Kernel, index: int, segment: Segment) -> None:
        self.kernel, self.entry, self.segment = kernel, kernel.entry, segment
        self.out: list[str] = []
        self.values: dict[str, str] = {}
        self.written: set[str] = set()
        self.block, self.count = "start", 0
        self._load_slots()
        following = index + 1
        for instruction in segment.body:
            if _ends(instruction):
                self._branch(instruction, following)
                break
            self._run(instruction)
        else:
            self._leave(str(following))
        lines = "\n  ".join(self.out)
        self.text = f"define i32 @s{index}(ptr %frame, ptr %slots) {{\nstart:\n  {lines}\n}}\n"

    # -- registers ---------------------------------------------------------------------------------

    def new(self, text: str) -> str:
        self.count += 1
        self.out.append(f"%v{self.count} = {text}")
        return f"%v{self.count}"

    def call(self, kind: str, name: str, *arguments: str) -> str:
        return self.new(f"call {kind} @{name}({', '.join(arguments)})")

    def _slot(self, name: str) -> str:
        return self.new(f"getelementptr i64, ptr %slots, i64 {self.kernel.slots[name]}")

    def _load_slots(self) -> None:
        defined: set[str] = set()
        for instruction in self.segment.body:
            reads, writes = self.kernel.uses(instruction)
            wanted = (reads | (writes if instruction.guard else set())) - defined
            for name in sorted(wanted):
                bits = self.entry.widths[name]
                held = max(bits, 8)
                value = self.new(f"load i{held}, ptr {self._slot(name)}")
                self.values[name] = value if bits > 1 else self.new(f"trunc i8 {value} to i1")
            defined |= reads | writes

    def _leave(self, target: str) -> None:
        for name in sorted(self.written & self.kernel.slots.keys()):
            bits, value = self.entry.widths[name], self.values[name]
            if bits == 1:
                bits, value = 8, self.new(f"zext i1 {value} to i8")
            self.out.append(f"store i{bits} {value}, ptr {self._slot(name)}")
        self.out.append(f"ret i32 {target}")

    def _branch(self, instruction: Instruction, following: int) -> None:
        target = "-1"
        if instruction.parts[0] == "bra":
            place = self.entry.labels[instruction.operands[0]]
            target = str(self.kernel.starts.get(place, -1))
        if instruction.guard:
            taken = self._guard(instruction)
            target = self.new(f"select i1 {taken}, i32 {target}, i32 {following}")
        self._leave(target)

    def _guard(self, instruction: Instruction) -> str:
        value = self.values[instruction.guard]
        return self.new(f"xor i1 {value}, true") if instruction.negated else value

    def get(self, operand: str, bits: int) -> str:
        """The value of an operand, as an integer of so many bits."""
        if operand in self.entry.widths:
            own, value = self.entry.widths[operand], self.values.get(operand)
            if value is None:
                raise UnknownPtx(f"{operand} is read before it is written")
            if own == bits:
                return value
            return self.new(f"{'trunc' if own > bits else 'zext'} i{own} {value} to i{bits}")
        if operand in SPECIAL:
            place = self.new(f"getelementptr i8, ptr %frame, i64 {SPECIAL[operand]}")
            value = self.new(f"load i32, ptr {place}")
            return value if bits == 32 else self.new(f"zext i32 {value} to i{bits}")
        if operand == "%laneid":
            return self.new(f"and i32 {self.get('%tid.x', 32)}, 31")
        if operand in self.entry.shared:
            return str(self.entry.shared[operand])
        if re.fullmatch(r"0[fFdD][0-9a-fA-F]+", operand):
            return str(int(operand[2:], 16))
        try:
            number = int(operand.rstrip("U"), 0)
        except ValueError:
            raise UnknownPtx(f"operand {operand}") from None
        if bits == 1:
            return "true" if number else "false"
        number &= (1 << bits) - 1
        return str(number)

    def set(self, name: str, value: str, bits: int) -> None:
        if name == "_":
            return
        own = self.entry.widths[name]
        if own != bits:
            value = self.new(f"{'trunc' if own < bits else 'zext'} i{bits} {value} to i{own}")
        elif not value.startswith("%"):  # values are names, so that a phi can take them
            value = (
                self.new(f"or i{bits} {value}, 0")
                if bits > 1
                else self.new(f"or i1 {value}, false")
            )
        self.values[name] = value
        self.written.add(name)

    # -- instructions --------------------------------------------------------------------------------

    def _run(self, instruction: Instruction) -> None:
        if not instruction.guard:
            self._dispatch(instruction)
            return
        _, writes = self.kernel.uses(instruction)
        before, taken, origin = dict(self.values), self._guard(instruction), self.block
        self.count += 1
        inside, after = f"in{self.count}", f"out{self.count}"
        self.out += [f"br i1 {taken}, label %{inside}, label %{after}", f"{inside}:"]
        self.block = inside
        self._dispatch(instruction)
        self.out += [f"br label %{after}", f"{after}:"]
        for name in sorted(writes):
            bits = self.entry.widths[name]
            self.values[name] = self.new(
                f"phi i{bits} [{self.values[name]}, %{self.block}], [{before[name]}, %{origin}]"
            )
        self.block = after

    def _dispatch(self, instruction: Instruction) -> None:
        name = instruction.parts[0]
        special = _SPECIAL.get(name)
        if special is not None:
            special(self, instruction)
            return
        parts = [p for p in instruction.parts[1:] if p not in HINTS]
        types = [p for p in parts if p in WIDTHS or PACKED.fullmatch(p)]
        if not types:
            raise UnknownPtx(instruction.text)
        kind = types[-1]
        flags = [p for p in parts if p not in types]
        operate = _SCALAR.get(name)
        if operate is None:
            raise UnknownPtx(instruction.text)
        try:
            if PACKED.fullmatch(kind):
                self._packed(operate, flags, kind[:-2], instruction)
                return
            bits = WIDTHS[kind]
            arguments = [
                self.get(o, _width(name, flags, k, bits))
                for k, o in enumerate(instruction.operands[1:])
            ]
            value, made = operate(self, flags, kind, arguments)
        except (KeyError, UnknownPtx) as error:
            raise UnknownPtx(f"{instruction.text}: {error}") from None
        self.set(instruction.operands[0], value, made)

    def _packed(
        self, operate: Callable, flags: list[str], kind: str, instruction: Instruction
    ) -> None:
        """Two numbers in one register: each half by itself."""
        bits = WIDTHS[kind]
        wholes = [self.get(o, 2 * bits) for o in instruction.operands[1:]]
        halves = []
        for shift in (0, bits):
            parts = [
                self.new(
                    f"trunc i{2 * bits} {self.new(f'lshr i{2 * bits} {w}, {shift}')} to i{bits}"
                )
                for w in wholes
            ]
            halves.append(operate(self, flags, kind, parts)[0])
        self.set(instruction.operands[0], self.join(halves, bits), 2 * bits)

    def join(self, values: list[str], bits: int) -> str:
        total, whole = len(values) * bits, "0"
        for k, value in enumerate(values):
            wide = self.new(f"zext i{bits} {value} to i{total}")
            whole = self.new(f"or i{total} {whole}, {self.new(f'shl i{total} {wide}, {k * bits}')}")
        return whole

    # -- numbers ---------------------------------------------------------------------------------------

    def as_float(self, value: str, kind: str, flags: list[str]) -> str:
        name, bits = FLOATS[kind]
        made = self.new(f"bitcast i{bits} {value} to {name}")
        return (
            self.call("float", "emu_flush", f"float {made}")
            if "ftz" in flags and kind == "f32"
            else made
        )

    def as_bits(self, value: str, kind: str, flags: list[str]) -> str:
        name, bits = FLOATS[kind]
        if "sat" in flags:
            raise UnknownPtx("saturation of floats")
        if "ftz" in flags and kind == "f32":
            value = self.call("float", "emu_flush", f"float {value}")
        return self.new(f"bitcast {name} {value} to i{bits}")

    def widened(self, value: str, bits: int, signed: bool) -> str:
        return (
            value
            if bits == 64
            else self.new(f"{'sext' if signed else 'zext'} i{bits} {value} to i64")
        )

    def access(self, operand: str, space: str, nbytes: int, is_store: bool, line: int) -> str:
        """A checked pointer to the operand's memory."""
        base, _, offset = operand.strip("[] ").partition("+")
        base = base.strip()
        if space == "param":
            return self.new(
                f"getelementptr i8, ptr {self.new('load ptr, ptr %frame')}, i64 {self.entry.params[base][0]}"
            )
        address = self.get(base, 64)
        if offset.strip():
            address = self.new(f"add i64 {address}, {int(offset.strip(), 0)}")
        which = len(self.kernel.lines)
        self.kernel.lines.append(line)
        checks = {"global": "emu_global", "shared": "emu_shared", "shared_cta": "emu_shared"}
        if space not in checks:
            raise UnknownPtx(f"memory space {space!r}")
        return self.call(
            "ptr",
            checks[space],
            f"i64 {address}",
            f"i32 {nbytes}",
            f"i32 {which}",
            f"i32 {int(is_store)}",
        )


def _width(name: str, flags: list[str], position: int, bits: int) -> int:
    """Bits of an operand: shifts and fields are given in 32, and a wide product is added in twice as many."""
    first = {"shl": 1, "shr": 1, "bfe": 1, "bfi": 2}.get(name)
    if first is not None and position >= first:
        return 32
    return 2 * bits if name == "mad" and "wide" in flags and position == 2 else bits


def _signed(kind: str) -> bool:
    return kind.startswith("s")


# -- instructions with operands of their own ----------------------------------------------------------


def _names(operand: str) -> list[str]:
    return [n.strip() for n in operand.strip("{} ").split(",")]


def _mov(f: _Function, i: Instruction) -> None:
    bits = WIDTHS[i.parts[-1]]
    to, source = i.operands
    if to.startswith("{"):
        names = _names(to)
        part = bits // len(names)
        whole = f.get(source, bits)
        for k, name in enumerate(names):
            f.set(
                name,
                f.new(f"trunc i{bits} {f.new(f'lshr i{bits} {whole}, {k * part}')} to i{part}"),
                part,
            )
    elif source.startswith("{"):
        names = _names(source)
        f.set(to, f.join([f.get(n, bits // len(names)) for n in names], bits // len(names)), bits)
    else:
        f.set(to, f.get(source, bits), bits)


def _memory(i: Instruction) -> tuple[str, int, int, bool]:
    """Space, bytes of an element, number of elements and whether loads extend the sign."""
    parts = [p for p in i.parts[1:] if p not in HINTS]
    count = next((int(p[1]) for p in parts if p in ("v2", "v4")), 1)
    space, kind = parts[0], parts[-1]
    known = {space, kind, f"v{count}"}
    if set(parts) - known:
        raise UnknownPtx(i.text)
    return space, WIDTHS[kind] // 8, count, kind.startswith("s")


def _ld(f: _Function, i: Instruction) -> None:
    space, nbytes, count, signed = _memory(i)
    pointer = f.access(i.operands[1], space, nbytes * count, False, i.line)
    for k, name in enumerate(_names(i.operands[0])):
        place = f.new(f"getelementptr i8, ptr {pointer}, i64 {k * nbytes}")
        value, bits = f.new(f"load i{8 * nbytes}, ptr {place}, align 1"), 8 * nbytes
        if signed and f.entry.widths[name] > bits:
            value, bits = (
                f.new(f"sext i{bits} {value} to i{f.entry.widths[name]}"),
                f.entry.widths[name],
            )
        f.set(name, value, bits)


def _st(f: _Function, i: Instruction) -> None:
    space, nbytes, count, _ = _memory(i)
    pointer = f.access(i.operands[0], space, nbytes * count, True, i.line)
    for k, name in enumerate(_names(i.operands[1])):
        place = f.new(f"getelementptr i8, ptr {pointer}, i64 {k * nbytes}")
        f.out.append(f"store i{8 * nbytes} {f.get(name, 8 * nbytes)}, ptr {place}, align 1")


def _atom(f: _Function, i: Instruction) -> None:
    space, operation, kind = (p for p in i.parts[1:] if p not in HINTS)
    has_result = i.parts[0] == "atom"
    address, *rest = i.operands[1 if has_result else 0 :]
    bits = WIDTHS[kind]
    pointer = f.access(address, space, bits // 8, True, i.line)
    old = f.new(f"load i{bits}, ptr {pointer}, align 1")
    arguments = [f.get(o, bits) for o in rest]
    if operation == "exch":
        made = arguments[0]
    elif operation == "cas":
        made = f.new(
            f"select i1 {f.new(f'icmp eq i{bits} {old}, {arguments[0]}')}, i{bits} {arguments[1]}, i{bits} {old}"
        )
    elif operation in ("add", "min", "max", "and", "or", "xor"):
        made = _SCALAR[operation](f, ["rn"] if kind in FLOATS else [], kind, [old, arguments[0]])[0]
    else:
        raise UnknownPtx(i.text)
    f.out.append(f"store i{bits} {made}, ptr {pointer}, align 1")
    if has_result:
        f.set(i.operands[0], old, bits)


def _packed_setp(f: _Function, i: Instruction, kind: str) -> None:
    """`setp.lt.f16x2 p|q, a, b`: p is of the lower halves, q of the upper ones."""
    targets, bits = i.operands[0].split("|"), WIDTHS[kind]
    if kind not in FLOATS or len(i.parts) != 3 or len(targets) != 2:
        raise UnknownPtx(i.text)
    wholes = [f.get(o, 2 * bits) for o in i.operands[1:3]]
    for k, target in enumerate(targets):
        shifted = [f.new(f"lshr i{2 * bits} {w}, {k * bits}") for w in wholes]
        halves = [f.new(f"trunc i{2 * bits} {v} to i{bits}") for v in shifted]
        a, b = (f.as_float(v, kind, []) for v in halves)
        compared = f"fcmp {COMPARISONS[i.parts[1]][2]} {FLOATS[kind][0]} {a}, {b}"
        f.set(target.strip(), f.new(compared), 1)


def _setp(f: _Function, i: Instruction) -> None:
    kind, compare = i.parts[-1], i.parts[1]
    if PACKED.fullmatch(kind):
        _packed_setp(f, i, kind[:-2])
        return
    flags, bits = list(i.parts[2:-1]), WIDTHS[i.parts[-1]]
    a, b = (f.get(o, bits) for o in i.operands[1:3])
    if kind in FLOATS:
        a, b = (f.as_float(v, kind, flags) for v in (a, b))
        value = f.new(f"fcmp {COMPARISONS[compare][2]} {FLOATS[kind][0]} {a}, {b}")
    else:
        value = f.new(f"icmp {COMPARISONS[compare][0 if _signed(kind) else 1]} i{bits} {a}, {b}")
    joins = [p for p in flags if p in ("and", "or", "xor")]
    if set(flags) - {"and", "or", "xor", "ftz"} or "|" in i.operands[0]:
        raise UnknownPtx(i.text)
    if joins:
        third = i.operands[3]
        other = f.get(third.lstrip("!"), 1)
        other = f.new(f"xor i1 {other}, true") if third.startswith("!") else other
        value = f.new(f"{joins[0]} i1 {value}, {other}")
    f.set(i.operands[0], value, 1)


def _selp(f: _Function, i: Instruction) -> None:
    bits = WIDTHS[i.parts[-1]]
    a, b = (f.get(o, bits) for o in i.operands[1:3])
    f.set(
        i.operands[0], f.new(f"select i1 {f.get(i.operands[3], 1)}, i{bits} {a}, i{bits} {b}"), bits
    )


ROUNDINGS = {"rni": 0, "rzi": 1, "rmi": 2, "rpi": 3}


def _cvt(f: _Function, i: Instruction) -> None:
    *flags, to, source = i.parts[1:]
    if PACKED.fullmatch(to):  # the first operand is the upper half
        halves = [
            _converted(f, flags, to[:-2], source, f.get(o, 32), i)[0]
            for o in reversed(i.operands[1:])
        ]
        f.set(i.operands[0], f.join(halves, 16), 32)
        return
    value, bits = _converted(f, flags, to, source, f.get(i.operands[1], WIDTHS[source]), i)
    own = f.entry.widths[i.operands[0]]
    if own > bits and _signed(to):
        value, bits = f.new(f"sext i{bits} {value} to i{own}"), own
    f.set(i.operands[0], value, bits)


def _converted(
    f: _Function, flags: list[str], to: str, source: str, value: str, i: Instruction
) -> tuple[str, int]:
    a, b = WIDTHS[source], WIDTHS[to]
    if "sat" in flags or set(flags) - {*ROUNDINGS, "rn", "ftz", "satfinite"}:
        raise UnknownPtx(i.text)
    rounding = next((ROUNDINGS[p] for p in flags if p in ROUNDINGS), None)
    if source == "bf16":  # the upper half of a float
        value = f.new(f"shl i32 {f.new(f'zext i16 {value} to i32')}, 16")
        source, a = "f32", 32
    if source not in FLOATS and to in FLOATS:
        made = f.new(f"{'sitofp' if _signed(source) else 'uitofp'} i{a} {value} to {FLOATS[to][0]}")
        return f.as_bits(made, to, flags), b
    if source not in FLOATS:
        if b <= a:
            return (value if a == b else f.new(f"trunc i{a} {value} to i{b}")), b
        return f.new(f"{'sext' if _signed(source) else 'zext'} i{a} {value} to i{b}"), b
    number, name = f.as_float(value, source, flags), FLOATS[source][0]
    if to == "bf16":
        return f.call("i16", "emu_to_bf16", f"float {number}"), 16
    if rounding is not None:
        wide = number if source == "f64" else f.new(f"fpext {name} {number} to double")
        wide = f.call("double", "emu_round", f"double {wide}", f"i32 {rounding}")
        if to not in FLOATS:
            which = "emu_to_signed" if _signed(to) else "emu_to_unsigned"
            made = f.call("i64", which, f"double {wide}", f"i32 {b}")
            return (made if b == 64 else f.new(f"trunc i64 {made} to i{b}")), b
        number, name, a = wide, "double", 64
    if to not in FLOATS:
        raise UnknownPtx(i.text)
    if b != a:
        number = f.new(f"{'fpext' if b > a else 'fptrunc'} {name} {number} to {FLOATS[to][0]}")
    return f.as_bits(number, to, flags), b


def _cvta(f: _Function, i: Instruction) -> None:
    f.set(i.operands[0], f.get(i.operands[1], 64), 64)


def _nothing(f: _Function, i: Instruction) -> None:
    """Fences: threads run one after the other, in an order that is one of the legal ones."""


def _trap(f: _Function, i: Instruction) -> None:
    f.out.append("call void @emu_trap()")


_SPECIAL = {
    "mov": _mov, "ld": _ld, "st": _st, "atom": _atom, "red": _atom, "setp": _setp, "selp": _selp, "cvt": _cvt,
    "cvta": _cvta, "membar": _nothing, "fence": _nothing, "bar": _nothing, "trap": _trap,
}  # fmt: skip


# -- instructions that are functions of numbers: (flags, type, arguments) → value and its bits ---------


def _arithmetic(integer: str, real: str) -> Callable:
    def run(f: _Function, flags: list[str], kind: str, args: list[str]) -> tuple[str, int]:
        bits = WIDTHS[kind]
        if kind in FLOATS:
            _only(flags, "rn", "ftz")
            a, b = (f.as_float(v, kind, flags) for v in args)
            return f.as_bits(f.new(f"{real} {FLOATS[kind][0]} {a}, {b}"), kind, flags), bits
        _only(flags)
        return f.new(f"{integer} i{bits} {args[0]}, {args[1]}"), bits

    return run


def _only(flags: list[str], *known: str) -> None:
    if set(flags) - set(known):
        raise UnknownPtx(f"modifiers {flags}")


def _mul(f: _Function, flags: list[str], kind: str, args: list[str]) -> tuple[str, int]:
    bits = WIDTHS[kind]
    if kind in FLOATS:
        return _arithmetic("", "fmul")(f, flags, kind, args)
    if flags == ["lo"] or not flags:
        return f.new(f"mul i{bits} {args[0]}, {args[1]}"), bits
    _only(flags, "wide", "hi")
    extend = "sext" if _signed(kind) else "zext"
    a, b = (f.new(f"{extend} i{bits} {v} to i{2 * bits}") for v in args[:2])
    product = f.new(f"mul i{2 * bits} {a}, {b}")
    if flags == ["wide"]:
        return product, 2 * bits
    return f.new(
        f"trunc i{2 * bits} {f.new(f'lshr i{2 * bits} {product}, {bits}')} to i{bits}"
    ), bits


def _fma(f: _Function, flags: list[str], kind: str, args: list[str]) -> tuple[str, int]:
    _only(flags, "rn", "ftz")
    if kind == "f16":  # products of halves are exact in double precision
        numbers = [f.new(f"fpext half {f.as_float(v, kind, flags)} to double") for v in args]
        made = f.call("double", "llvm.fma.f64", *(f"double {n}" for n in numbers))
        return f.as_bits(f.new(f"fptrunc double {made} to half"), kind, flags), 16
    name = FLOATS[kind][0]
    numbers = [f"{name} {f.as_float(v, kind, flags)}" for v in args]
    return f.as_bits(f.call(name, f"llvm.fma.{kind}", *numbers), kind, flags), WIDTHS[kind]


def _mad(f: _Function, flags: list[str], kind: str, args: list[str]) -> tuple[str, int]:
    if kind in FLOATS:
        return _fma(f, flags, kind, args)
    product, bits = _mul(f, flags, kind, args[:2])
    return f.new(f"add i{bits} {product}, {args[2]}"), bits


def _division(which: str) -> Callable:
    def run(f: _Function, flags: list[str], kind: str, args: list[str]) -> tuple[str, int]:
        bits = WIDTHS[kind]
        if kind in FLOATS:
            _only(flags, "rn", "full", "ftz")  # `full` is within 2 ulp; here it is exact
            return _arithmetic("", "fdiv")(f, [p for p in flags if p != "full"], kind, args)
        _only(flags)
        a, b = (f.widened(v, bits, _signed(kind)) for v in args)
        made = f.call("i64", f"emu_{'s' if _signed(kind) else 'u'}{which}", f"i64 {a}", f"i64 {b}")
        return (made if bits == 64 else f.new(f"trunc i64 {made} to i{bits}")), bits

    return run


def _sqrt(f: _Function, flags: list[str], kind: str, args: list[str]) -> tuple[str, int]:
    _only(flags, "rn", "ftz")
    name = FLOATS[kind][0]
    return f.as_bits(
        f.call(name, f"llvm.sqrt.{kind}", f"{name} {f.as_float(args[0], kind, flags)}"), kind, flags
    ), WIDTHS[kind]


def _extreme(which: str) -> Callable:
    def run(f: _Function, flags: list[str], kind: str, args: list[str]) -> tuple[str, int]:
        bits = WIDTHS[kind]
        if kind in FLOATS:
            _only(flags, "ftz", "NaN")
            inner = "f32" if kind == "f16" else kind
            name = FLOATS[inner][0]
            a, b = (f.as_float(v, kind, flags) for v in args)
            if kind == "f16":
                a, b = (f.new(f"fpext half {v} to float") for v in (a, b))
            made = f.call(name, f"emu_{which}_{inner}", f"{name} {a}", f"{name} {b}")
            if "NaN" in flags:
                unordered = f.new(f"fcmp uno {name} {a}, {b}")
                made = f.new(
                    f"select i1 {unordered}, {name} {f.new(f'fadd {name} {a}, {b}')}, {name} {made}"
                )
            if kind == "f16":
                made = f.new(f"fptrunc float {made} to half")
            return f.as_bits(made, kind, flags), bits
        _only(flags, "relu")
        order = ("s" if _signed(kind) else "u") + ("lt" if which == "min" else "gt")
        made = f.new(
            f"select i1 {f.new(f'icmp {order} i{bits} {args[0]}, {args[1]}')}, i{bits} {args[0]}, i{bits} {args[1]}"
        )
        if "relu" in flags:
            made = f.new(
                f"select i1 {f.new(f'icmp sgt i{bits} {made}, 0')}, i{bits} {made}, i{bits} 0"
            )
        return made, bits

    return run


def _logic(which: str) -> Callable:
    def run(f: _Function, flags: list[str], kind: str, args: list[str]) -> tuple[str, int]:
        _only(flags)
        return f.new(f"{which} i{WIDTHS[kind]} {args[0]}, {args[1]}"), WIDTHS[kind]

    return run


def _not(f: _Function, flags: list[str], kind: str, args: list[str]) -> tuple[str, int]:
    return f.new(f"xor i{WIDTHS[kind]} {args[0]}, -1"), WIDTHS[kind]


def _shift(left: bool) -> Callable:
    def run(f: _Function, flags: list[str], kind: str, args: list[str]) -> tuple[str, int]:
        _only(flags)
        bits = WIDTHS[kind]
        what = "shl" if left else "ashr" if _signed(kind) else "lshr"
        small = f.new(f"icmp ult i32 {args[1]}, {bits}")  # larger ones shift everything out
        by = f.new(f"select i1 {small}, i32 {args[1]}, i32 {bits - 1}")
        if bits != 32:
            by = f.new(f"{'trunc' if bits < 32 else 'zext'} i32 {by} to i{bits}")
        made = f.new(f"{what} i{bits} {args[0]}, {by}")
        if what == "ashr":
            return made, bits
        return f.new(f"select i1 {small}, i{bits} {made}, i{bits} 0"), bits

    return run


def _abs(f: _Function, flags: list[str], kind: str, args: list[str]) -> tuple[str, int]:
    bits = WIDTHS[kind]
    if kind in FLOATS or kind == "bf16":
        _only(flags)
        return f.new(f"and i{bits} {args[0]}, {(1 << (bits - 1)) - 1}"), bits
    negative = f.new(f"icmp slt i{bits} {args[0]}, 0")
    return f.new(
        f"select i1 {negative}, i{bits} {f.new(f'sub i{bits} 0, {args[0]}')}, i{bits} {args[0]}"
    ), bits


def _neg(f: _Function, flags: list[str], kind: str, args: list[str]) -> tuple[str, int]:
    _only(flags)
    bits = WIDTHS[kind]
    if kind in FLOATS or kind == "bf16":
        return f.new(f"xor i{bits} {args[0]}, {1 << (bits - 1)}"), bits
    return f.new(f"sub i{bits} 0, {args[0]}"), bits


def _copysign(f: _Function, flags: list[str], kind: str, args: list[str]) -> tuple[str, int]:
    bits = WIDTHS[kind]
    sign = 1 << (bits - 1)  # of the first operand, on the second
    return f.new(
        f"or i{bits} {f.new(f'and i{bits} {args[0]}, {sign}')}, {f.new(f'and i{bits} {args[1]}, {sign - 1}')}"
    ), bits


def _prmt(f: _Function, flags: list[str], kind: str, args: list[str]) -> tuple[str, int]:
    _only(flags)
    return f.call("i32", "emu_prmt", *(f"i32 {a}" for a in args)), 32


def _bfe(f: _Function, flags: list[str], kind: str, args: list[str]) -> tuple[str, int]:
    bits = WIDTHS[kind]
    wide = f.widened(args[0], bits, False)
    made = f.call(
        "i64",
        "emu_bfe",
        f"i64 {wide}",
        f"i32 {args[1]}",
        f"i32 {args[2]}",
        f"i32 {bits}",
        f"i32 {int(_signed(kind))}",
    )
    return (made if bits == 64 else f.new(f"trunc i64 {made} to i{bits}")), bits


def _bfi(f: _Function, flags: list[str], kind: str, args: list[str]) -> tuple[str, int]:
    bits = WIDTHS[kind]
    a, b = (f.widened(v, bits, False) for v in args[:2])
    made = f.call(
        "i64", "emu_bfi", f"i64 {a}", f"i64 {b}", f"i32 {args[2]}", f"i32 {args[3]}", f"i32 {bits}"
    )
    return (made if bits == 64 else f.new(f"trunc i64 {made} to i{bits}")), bits


def _lop3(f: _Function, flags: list[str], kind: str, args: list[str]) -> tuple[str, int]:
    return f.call("i32", "emu_lop3", *(f"i32 {a}" for a in args)), 32


def _funnel(f: _Function, flags: list[str], kind: str, args: list[str]) -> tuple[str, int]:
    both = f.join(args[:2], 32)
    by = f.new(f"and i32 {args[2]}, 31")
    if "clamp" in flags:
        by = f.new(f"select i1 {f.new(f'icmp ult i32 {args[2]}, 32')}, i32 {args[2]}, i32 32")
    wide = f.new(f"zext i32 {by} to i64")
    if "l" in flags:
        shifted = f.new(f"shl i64 {both}, {wide}")
        return f.new(f"trunc i64 {f.new(f'lshr i64 {shifted}, 32')} to i32"), 32
    return f.new(f"trunc i64 {f.new(f'lshr i64 {both}, {wide}')} to i32"), 32


def _bits(name: str, *more: str) -> Callable:
    def run(f: _Function, flags: list[str], kind: str, args: list[str]) -> tuple[str, int]:
        bits = WIDTHS[kind]
        made = f.call(f"i{bits}", f"llvm.{name}.i{bits}", f"i{bits} {args[0]}", *more)
        if bits == 64 and name != "bitreverse":  # a number of bits has 32
            return f.new(f"trunc i64 {made} to i32"), 32
        return made, bits

    return run


_SCALAR: dict[str, Callable] = {
    "add": _arithmetic("add", "fadd"), "sub": _arithmetic("sub", "fsub"), "mul": _mul, "mad": _mad, "fma": _fma,
    "div": _division("div"), "rem": _division("rem"), "sqrt": _sqrt, "min": _extreme("min"), "max": _extreme("max"),
    "and": _logic("and"), "or": _logic("or"), "xor": _logic("xor"), "not": _not, "shl": _shift(True), "shr": _shift(False),
    "abs": _abs, "neg": _neg, "copysign": _copysign, "prmt": _prmt, "bfe": _bfe, "bfi": _bfi, "lop3": _lop3, "shf": _funnel,
    "popc": _bits("ctpop"), "clz": _bits("ctlz", "i1 false"), "brev": _bits("bitreverse"),
}  # fmt: skip
