"""PTX text → the entry function in it: registers, parameters, shared memory and instructions."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

WIDTHS = {"pred": 1, **{f"{k}{n}": n for k in "bsuf" for n in (8, 16, 32, 64)}, "bf16": 16}


@dataclass(frozen=True)
class Instruction:
    """One statement; `guard` is the register before it that switches it on, `~` if negated."""

    line: int
    guard: str
    negated: bool
    parts: tuple[str, ...]
    operands: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"{'.'.join(self.parts)} {', '.join(self.operands)} (line {self.line})"


@dataclass
class Entry:
    """A kernel: everything that is needed to run it."""

    name: str
    arch: int
    required_threads: int = 0
    params: dict[str, tuple[int, int]] = field(default_factory=dict)  # name → offset, bytes
    widths: dict[str, int] = field(default_factory=dict)  # register → bits
    shared: dict[str, int] = field(default_factory=dict)  # symbol → address
    static_shared: int = 0
    body: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)  # label → index in body


class UnknownPtx(Exception):
    """Something that this translator does not know; it never guesses."""


def from_cubin(cubin: bytes) -> str:
    """The PTX that a cubin carries, because Triton compiles with line information."""
    for name, content in _sections(cubin):
        if name == ".nv_debug_ptx_txt":
            return content.replace(b"\0", b"\n").decode()  # lines are separated by zero bytes
    raise UnknownPtx("the cubin carries no PTX: it was compiled without line information")


def architecture(text: str) -> int:
    """The number in `.target sm_90a`."""
    return int(re.findall(r"^\.target\s+sm_(\d+)", text, re.MULTILINE)[0])


def without_target(text: str) -> str:
    """The same lines, without what depends on the architecture only, places in the source and comments."""
    return re.sub(r"(?m)^\s*\.(version|target|loc)\b.*|//.*", "", text)


def stack_bytes(cubin: bytes) -> int:
    """Bytes of local memory per thread: spilled registers and arrays (EIATTR_FRAME_SIZE)."""
    most = 0
    for name, content in _sections(cubin):
        at = 0
        while name == ".nv.info" and at < len(content):
            form, attribute, size = struct.unpack_from("<BBH", content, at)
            at += 4
            if form == 4:  # the size is followed by as many bytes; else it is the value itself
                if attribute == 0x11:
                    most = max(most, struct.unpack_from("<II", content, at)[1])
                at += size
    return most


def _sections(cubin: bytes) -> Iterator[tuple[str, bytes]]:
    (start,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQ", cubin, start + k * size) for k in range(count)]
    texts = headers[names][4]
    for name, kind, _, _, offset, nbytes in headers:
        first = texts + name
        content = (
            b"" if kind == 8 else cubin[offset : offset + nbytes]
        )  # 8: has no bytes in the file
        yield cubin[first : cubin.index(b"\0", first)].decode(), content


def parse(text: str) -> Entry:
    """Parse the only entry function of a module."""
    return _Parser(text).entry


class _Parser:
    def __init__(self, text: str) -> None:
        self.entry = Entry("", 0)
        self._scopes: list[dict[str, str]] = []
        self._n_scopes = 0
        in_body, header, rest = False, "", ""
        for number, raw in enumerate(text.splitlines(), 1):
            line = raw.partition("//")[0].strip()
            if not line or line.startswith((".loc", ".file", ".version", ".address_size")):
                continue
            if in_body:
                rest = self._statements(rest + line, number)
                if not self._scopes:
                    return  # what follows is for debuggers
            elif line.startswith(".target"):
                self.entry.arch = architecture(line)
            elif line.startswith(".global") and line.endswith(";"):
                continue  # a constant; an instruction that names it is unknown
            elif ".shared" in line:
                self._declare_shared(line)
            elif line == "{" and ".entry" in header:
                self._header(header)
                self._scopes.append({})
                in_body = True
            elif ".entry" in line or header:
                header += line + " "
            else:
                raise UnknownPtx(f"line {number}: {line}")
        raise UnknownPtx("the module has no entry function")

    def _header(self, header: str) -> None:
        self.entry.name = re.findall(r"\.entry\s+([\w$]+)", header)[0]
        offset = 0
        for kind, name in re.findall(
            r"\.param\s+\.(\w+)(?:\s+\.ptr[^,)]*?)?\s+([\w$]+)\s*[,)]", header
        ):
            nbytes = WIDTHS[kind] // 8
            offset = -(-offset // nbytes) * nbytes
            self.entry.params[name] = (offset, nbytes)
            offset += nbytes
        if len(self.entry.params) != header.count(".param"):
            raise UnknownPtx(f"parameters: {header}")
        threads = re.findall(r"\.reqntid\s+(\d+)", header)
        self.entry.required_threads = int(threads[0]) if threads else 0

    def _declare_shared(self, line: str) -> None:
        found = re.fullmatch(
            r"(?:\.\w+\s+)*\.shared\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d*)\];", line
        )
        if found is None:
            raise UnknownPtx(line)
        align, size = int(found[1]), int(found[3] or 0)
        start = -(-self.entry.static_shared // align) * align
        self.entry.shared[found[2]] = start
        self.entry.static_shared = start + size

    def _statements(self, text: str, number: int) -> str:
        """Take all complete statements off the front of `text` and return the rest."""
        while text:
            if found := re.match(r"([\w$]+):\s*", text):
                self.entry.labels[found[1]] = len(self.entry.body)
                text = text[found.end() :]
            elif text[0] == "{":
                self._scopes.append({})
                self._n_scopes += 1
                text = text[1:].lstrip()
            elif text[0] == "}":
                self._scopes.pop()
                text = text[1:].lstrip()
                if not self._scopes:
                    return ""
            elif ";" in text:
                statement, _, text = text.partition(";")
                self._statement(statement.strip(), number)
                text = text.lstrip()
            else:
                return text + " "
        return ""

    def _statement(self, text: str, number: int) -> None:
        if text.startswith(".reg"):
            kind, names = re.fullmatch(r"\.reg\s+\.(\w+)\s+(.*)", text).groups()
            for name in map(str.strip, names.split(",")):
                self._declare(name, WIDTHS[kind])
            return
        if text.startswith(".shared"):
            self._declare_shared(text + ";")
            return
        if text.startswith(".pragma") or not text:
            return
        guard, negated = "", False
        if text[0] == "@":
            found = re.match(r"@(!?)(\S+)\s+", text)
            negated, guard = found[1] == "!", self._named(found[2])
            text = text[found.end() :]
        opcode, _, rest = text.partition(" ") if " " in text else text.partition("\t")
        opcode, rest = (opcode + " " + rest).replace("\t", " ").split(" ", 1)
        operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*", rest)
        parts = tuple(opcode.replace("::", "_").split("."))
        named = tuple(re.sub(r"%?[A-Za-z_$][\w$]*", self._renamed, o.strip()) for o in operands)
        self.entry.body.append(Instruction(number, guard, negated, parts, named))

    def _declare(self, name: str, bits: int) -> None:
        many = re.fullmatch(r"(%\w+?)<(\d+)>", name)
        names = [f"{many[1]}{k}" for k in range(int(many[2]))] if many else [name]
        for each in names:
            unique = each if len(self._scopes) == 1 else f"{each}.{self._n_scopes}"
            self._scopes[-1][each] = unique
            self.entry.widths[unique] = bits

    def _named(self, name: str) -> str:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return name

    def _renamed(self, found: re.Match[str]) -> str:
        return self._named(found[0])
