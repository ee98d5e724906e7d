"""Defines ops: a body with declared parameters enters, a public function leaves.

Signature, docstring, stub, broadcasting and tests of an op all derive from one definition:

    @op.pointwise(layouts="HWC FHWC DHWC")
    def brightness(
        input=data(),
        brightness=arg(float, 1.0, "Brightness multiplier."),
        dtype=static(DType, None, "Output type; the input's if omitted."),
    ):
        '''Scale intensities.'''
        return to_f32(input) * brightness

There are four kinds of parameter. `data` is an input, read element by element. `arg` is a run-time
number, for all samples or for each, which goes to the kernel. `geometry` is a run-time number that
decides shapes or positions, so the call reads it. `static` is baked into the kernel and its key.

A *pointwise* body runs on scalar expressions; a *graph* body builds nodes with fusion.graph.build.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..kernels.common.memo import Memo
from ..kernels.ir import dtypes as dt
from ..kernels.ir.dtypes import DType

REQUIRED = type("Required", (), {"__repr__": lambda self: "<required>"})()
NOTHING = type("Nothing", (), {"__repr__": lambda self: "None"})()  # None, given as a choice


@dataclass(frozen=True)
class Param:
    """One parameter of an op."""

    kind: str  # data | arg | geometry | static
    type: Any = None
    default: Any = None
    doc: str = ""
    vector: bool = False
    matrix: bool = False
    positional: bool = False
    variadic: bool = False
    per_frame: bool = False
    any_shape: bool = False
    ragged: bool = False
    uneven: bool = False
    takes_none: bool = False
    files: bool = False
    name: str = ""


def data(doc: str = "Input data.", *, variadic: bool = False, files: bool = False) -> Any:
    """An input, or any number of inputs if `variadic`; `files` also takes the bytes of files."""
    return Param("data", None, REQUIRED, doc, positional=True, variadic=variadic, files=files)


def arg(
    type: Any,
    default: Any = REQUIRED,
    doc: str = "",
    *,
    vector: bool = False,
    matrix: bool = False,
    positional: bool = False,
    per_frame: bool = False,
    any_shape: bool = False,
) -> Any:
    """A number for the kernel, scalar or per sample. `vector` also allows a list, `matrix` a
    matrix, `any_shape` any tensor, `per_frame` a value per frame (in a layout that begins with
    F)."""
    many = vector or matrix or any_shape
    return Param(
        "arg", type, default, doc, many, matrix, positional,
        per_frame=per_frame, any_shape=any_shape,
    )  # fmt: skip


def geometry(
    type: Any,
    default: Any = None,
    doc: str = "",
    *,
    vector: bool = False,
    matrix: bool = False,
    positional: bool = False,
    ragged: bool = False,
    uneven: bool = False,
    per_frame: bool = False,
) -> Any:
    """A number that decides shapes or positions, scalar or per sample. `vector` also allows a list;
    `uneven` lists of different lengths per sample, which the body gets as a list of arrays;
    `matrix` a list of rows, which the body gets as one flat list, padded with zeros; `ragged` an
    array of any shape per sample, which the body gets as a list of arrays; `per_frame` a value per
    frame, for an op that is called `by_frame`."""
    many = vector or matrix or ragged
    return Param(
        "geometry", type, default, doc, many, matrix, positional, per_frame=per_frame,
        ragged=ragged, uneven=uneven,
    )  # fmt: skip


def static(
    type: Any,
    default: Any = None,
    doc: str = "",
    *,
    positional: bool = False,
    takes_none: bool = False,
) -> Any:
    """A choice that is baked into the kernel; a tuple of strings as `type` lists the choices.
    `takes_none`: None is a choice of its own, and does not stand for the default."""
    return Param("static", type, default, doc, positional=positional, takes_none=takes_none)


@dataclass
class OpDef:
    """The definition of an op."""

    name: str
    kind: str  # pointwise | graph
    body: Callable[..., Any]
    params: tuple[Param, ...]
    doc: str
    layouts: tuple[str, ...] = ()
    out: Any = "same"  # pointwise: type of the result if `dtype` is not given
    rejects: tuple[DType, ...] = ()
    nearest_only: tuple[DType, ...] = ()  # types that the op moves, but does not interpolate
    needs_channels: int | None = None
    by_frame: bool = False  # is called for each frame if a `per_frame` argument is given
    # The graph follows from choices and from types and shapes of inputs (see known_graphs.py).
    by_facts: bool = False
    mixed: bool = False  # inputs stay in host memory whatever the device; the body gets `ordinal`
    has_effects: bool = False  # does more than give a result, so it is never made in advance
    # Number of results, or the name of the argument that adds a second one; None if it varies.
    outputs: int | str | None = 1
    # What happens to enum values among the inputs: refused (""), moved as numbers ("moved"), or the
    # body takes them as they are ("kept").
    enums: str = ""
    sample: str = ""  # an example call for the docs and the tests
    public: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.data = tuple(p for p in self.params if p.kind == "data")
        self.variadic = any(p.variadic for p in self.data)
        self.others = tuple(p for p in self.params if p.kind != "data")
        self.names = tuple(p.name for p in self.others)
        self.args = tuple(p for p in self.params if p.kind == "arg")
        self.geometry = tuple(p for p in self.params if p.kind == "geometry")
        self.statics = tuple(p for p in self.params if p.kind == "static")
        # Each parameter with its index in `others`.
        self.arg_slots, self.geometry_slots, self.static_slots = (
            tuple((k, p) for k, p in enumerate(self.others) if p.kind == kind)
            for kind in ("arg", "geometry", "static")
        )
        # Parameters that may have a value per frame, if `call` takes care of that.
        self.frame_slots = tuple(
            (k, p) for k, p in enumerate(self.others) if p.per_frame and self.by_frame
        )
        # Where its generator is among them; None if the op is not random.
        self.rng_at = next((k for k, p in enumerate(self.others) if p.type == "RNG"), None)
        # Choices that are left at their defaults; filled by the first call.
        self.usual_choices: dict[str, Any] = {}
        # Caches of the stages of a call (ndd/core/call.py).
        self.known_choices: Memo[Any, dict[str, Any]] = Memo(f"choices of {self.name}", 1024)
        self.default_args: Memo[int, Any] = Memo(f"default arguments of {self.name}", 256)
        self.accepted: Memo[Any, bool] = Memo(f"data of {self.name}", 256)
        self.known_kinds: Memo[Any, Any] = Memo(f"kinds of {self.name}", 1024)
        self.known_calls: Memo[Any, Any] = Memo(f"calls of {self.name} with plain numbers", 1024)


OPS: dict[str, OpDef] = {}


class _Define:
    """`@op.pointwise(...)` and `@op.graph(...)`."""

    def pointwise(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        return lambda body: _define("pointwise", body, options)

    def graph(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        return lambda body: _define("graph", body, options)


op = _Define()


def _define(kind: str, body: Callable[..., Any], options: dict[str, Any]) -> Any:
    name = options.pop("name", None) or body.__name__
    if name in OPS:
        raise ValueError(f"op {name} is defined twice")
    params = tuple(
        Param(**{**p.default.__dict__, "name": p.name})
        for p in inspect.signature(body).parameters.values()
        if isinstance(p.default, Param)  # `count` and `ordinal` come from `call`, not from the user
    )
    layouts = tuple(options.pop("layouts", "").split())
    for which in ("rejects", "nearest_only"):
        options[which] = tuple(dt.DType.parse(n) for n in options.pop(which, "").split())
    defined = OpDef(
        name, kind, body, params, inspect.cleandoc(body.__doc__ or ""), layouts, **options
    )  # fmt: skip
    OPS[name] = defined
    defined.public = _public_function(defined)
    return defined.public


def _public_function(defined: OpDef) -> Callable[..., Any]:
    """A function with the op's real signature, whose calls `call.call` makes."""
    from ..loop.calls import made
    from .call import call

    short = defined.name.rpartition(".")[2]
    declared = _Declared(defined)
    namespace: dict[str, Any] = {
        "_made": made, "_call": call, "_op": defined, "_reject": declared.reject,
        "_too_many": declared.too_many, "_listed": _listed, "_NOTHING": NOTHING,
    }  # fmt: skip
    lead: list[str] = []
    inputs: list[str] = []
    for p in defined.data:
        lead.append(f"*{p.name}" if p.variadic else p.name)
        inputs.append(f"*{p.name}" if p.variadic else p.name)
    keyword: list[str] = []
    for p in defined.others:
        # Required parameters also default to None, so that unknown names are reported first.
        namespace[f"_default_{p.name}"] = None if p.default is REQUIRED else p.default
        (lead if p.positional else keyword).append(f"{p.name}=_default_{p.name}")
    keyword += ["batch_size=None", "device=None", "**_unknown"]
    star = [] if defined.variadic else ["*_extra"]
    signature = ", ".join([*lead, *star, *keyword])
    packed = "".join(f"{i}, " for i in inputs)
    choices = "".join(
        f"_NOTHING if {p.name} is None else {p.name}, " if p.takes_none else f"{p.name}, "
        for p in defined.others
    )
    given = f"_op, ({packed}), ({choices}batch_size, device)"
    made_by = f"_call({given})" if defined.has_effects else f"_made({given}, _call)"
    name = defined.data[0].name if defined.variadic else ""
    check = f"{name} = _listed({name})" if name else "if _extra: _too_many(_extra)"
    source = (
        f"def {short}({signature}):\n    if _unknown: _reject(_unknown)\n    {check}\n"
        f"    return {made_by}\n"
    )
    exec(compile(source, f"<ndd op {defined.name}>", "exec"), namespace)
    function: Callable[..., Any] = namespace[short]
    function.__doc__ = document(defined)
    function.__module__ = "ndd" + "".join(f".{p}" for p in defined.name.split(".")[:-1])
    function.__qualname__ = short
    function.__wrapped__ = declared  # type: ignore[attr-defined]
    return function


def _listed(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs of a call that takes any number of them, also if they came as one list."""
    if len(inputs) != 1 or not isinstance(inputs[0], (list, tuple)):
        return inputs
    items = inputs[0]
    is_number = [isinstance(v, (bool, int, float, list, tuple)) for v in items]
    return inputs if all(is_number) else tuple(items)  # numbers are one tensor


class _Declared:
    """Gives `inspect.signature` the signature of an op, without `**_unknown`.

    It is built on demand: the signatures of all ops would take 5 % of `import ndd`.
    """

    def __init__(self, defined: OpDef) -> None:
        self._op = defined

    @property
    def __signature__(self) -> inspect.Signature:
        kinds = inspect.Parameter
        found = []
        for p in sorted(self._op.params, key=lambda p: not p.positional):
            named = kinds.POSITIONAL_OR_KEYWORD if p.positional else kinds.KEYWORD_ONLY
            kind = kinds.VAR_POSITIONAL if p.variadic else named
            default = kinds.empty if p.default is REQUIRED else p.default
            found.append(kinds(p.name, kind, default=default))
        found += [kinds(n, kinds.KEYWORD_ONLY, default=None) for n in ("batch_size", "device")]
        return inspect.Signature(found)

    def reject(self, unknown: dict[str, Any]) -> None:
        from .suggestions import unexpected

        short = self._op.name.rpartition(".")[2]
        raise unexpected(short, unknown, self.__signature__.parameters)

    def too_many(self, extra: tuple[Any, ...]) -> None:
        from .extra_arguments import too_many

        raise too_many(self._op, extra)


_TYPE_NAMES = {float: "float", int: "int", bool: "bool", str: "str"}


def type_text(p: Param) -> str:
    """How a parameter's type is written in documentation."""
    if p.kind == "data":
        return "Tensor or Batch"
    known = _TYPE_NAMES.get(p.type, getattr(p.type, "__name__", ""))
    base = p.type if isinstance(p.type, str) else known
    if isinstance(p.type, tuple):
        base = " | ".join(map(repr, p.type))
    if p.vector:
        base = f"{base} or {'nested ' if p.matrix else ''}sequence of {base}"
    return f"{base} or Tensor or Batch" if p.kind in ("arg", "geometry") else base


def _example_line(line: str) -> str:
    """A line of an example: code, the continuation of a block, or after "=" what is printed."""
    if line.startswith("="):
        return line[1:].strip()
    continues = line.startswith((" ", "except "))
    return f"{'...' if continues else '>>>'} {line}"


def document(defined: OpDef) -> str:
    """NumPy-style docstring, with the example first."""
    lines = [defined.doc, ""]
    if not defined.sample and defined.kind == "pointwise":
        image = "ndd.zeros(shape=[4, 4, 3], dtype=ndd.uint8, layout='HWC')"
        defined.sample = f"ndd.{defined.name}({image}).shape\n=(4, 4, 3)"
    if defined.sample:
        lines += [">>> import ndd", *map(_example_line, defined.sample.splitlines()), ""]
    lines += ["Parameters", "----------"]
    for p in defined.params:
        default = "" if p.default is REQUIRED else f", default {p.default!r}"
        lines += [f"{p.name} : {type_text(p)}{default}", f"    {p.doc}"]
    lines += [
        "batch_size : int, optional", "    Number of samples, if no input is a Batch.",
        "device : str or Device, optional", "    Where to run; follows the inputs if omitted.",
    ]  # fmt: skip
    if defined.layouts:
        lines += ["", f"Layouts: {', '.join(defined.layouts)}."]
    return "\n".join(lines)
