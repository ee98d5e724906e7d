"""A kernel's syntax tree → the same kernel with each straight run of assignments as one call.

NOTE [straight runs] Most lines of a kernel are assignments `t12 = t11 * K0` without a branch. Numba
translates each into three to five statements, types those to a fixed point, gives each a stack
slot, and walks over all of them in each of its passes: 1 ms a line. So a run of such lines becomes
one function, `o_1, o_2 = run_3(i_1, i_2)`. We type and lower its lines in order, by the same rules
(Numba's signatures, casts and implementations), without everything in between. LLVM sees the same
instructions, in values instead of stack slots.

A value that only other runs read stays in the tuple that its run returned, so it costs nothing.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import operator
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from numba.core import types as numba_types
from numba.core.datamodel import default_manager, models
from numba.core.errors import TypingError
from numba.core.registry import cpu_target
from numba.core.typing import signature

types: Any = numba_types  # it makes most of its names when it is imported

_OPERATORS: dict[type, Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.USub: operator.neg,
    ast.Invert: operator.invert,
}  # fmt: skip
_STARS = (types.StarArgTuple, types.StarArgUniTuple)
_numbers = itertools.count()


def shortened(source: str, path: str, function: str, namespace: dict[str, Any]) -> list[RunType]:
    """Replace a function in its module's namespace by one that calls runs, which are returned."""
    tree = ast.parse(source)
    found = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function)
    runs = _Shortening(found, namespace).runs()
    exec(compile(ast.Module([found], []), path, "exec"), namespace)
    return runs


@dataclass(eq=False)
class _Run:
    """Consecutive lines of a function, and the variables that they share with others."""

    name: str
    lines: list[ast.stmt]
    stored: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)  # from outside
    seen: list[str] = field(default_factory=list)  # those that lines outside of runs read
    kept: list[str] = field(default_factory=list)  # those that only other runs read


class _Shortening:
    """One function: finds its runs, and what each reads and returns."""

    def __init__(self, function: ast.FunctionDef, namespace: dict[str, Any]) -> None:
        self.function, self.namespace = function, namespace
        names = [n for n in ast.walk(function) if isinstance(n, ast.Name)]
        self.definitions = Counter(n.id for n in names if isinstance(n.ctx, ast.Store))
        self.definitions.update(a.arg for a in function.args.args)
        self.found: list[_Run] = []
        self.read_by_others: set[str] = set()

    def runs(self) -> list[RunType]:
        """Rewrite the function; returns the types of its runs."""
        body = self._split(self.function.body)
        for run in self.found:
            self._look(run)
        # A variable that has one definition has that value wherever it is read.
        place = {n: run for run in self.found for n in run.stored if self.definitions[n] == 1}
        wanted = {name for run in self.found for name in run.reads}
        for run in self.found:
            for name in run.stored:
                if name in self.read_by_others or (name in wanted and name not in place):
                    run.seen.append(name)
                elif name in wanted:
                    run.kept.append(name)
        made = [self._called(run, place) for run in self.found]
        self.function.body = _joined(body)
        return made

    def _split(self, body: list[Any]) -> list[Any]:
        """The lines of a block, with each run in place of its lines."""
        result: list[Any] = []
        for is_plain, group in itertools.groupby(body, self._is_plain):
            lines = list(group)
            if is_plain:
                lines = [_Run(f"run_{len(self.found)}", lines)]
                self.found += lines
            for line in () if is_plain else lines:
                for part in ("body", "orelse"):
                    if getattr(line, part, None):
                        setattr(line, part, self._split(getattr(line, part)))
                self._note_reads(line)
            result += lines
        return result

    def _note_reads(self, line: ast.AST) -> None:
        for node in _nodes(line):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self.read_by_others.add(node.id)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                self.read_by_others.add(node.target.id)

    def _is_plain(self, line: ast.stmt) -> bool:
        if isinstance(line, ast.Expr):
            return isinstance(line.value, ast.Call) and self._is_value(line.value)
        if not isinstance(line, ast.Assign) or len(line.targets) != 1:
            return False
        target, value = line.targets[0], line.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            names = all(isinstance(n, ast.Name) for n in target.elts)
            return names and all(self._is_value(v) for v in value.elts)
        return isinstance(target, ast.Name) and self._is_value(value)

    def _is_value(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Constant):
            return type(node.value) in (int, float, bool)
        if isinstance(node, (ast.BinOp, ast.UnaryOp)) and type(node.op) not in _OPERATORS:
            return False
        if isinstance(node, ast.BinOp):
            return self._is_value(node.left) and self._is_value(node.right)
        if isinstance(node, ast.UnaryOp):
            return self._is_value(node.operand)
        if isinstance(node, ast.Compare):
            known = len(node.ops) == 1 and type(node.ops[0]) in _OPERATORS
            return known and self._is_value(node.left) and self._is_value(node.comparators[0])
        if isinstance(node, ast.Call):
            is_global = isinstance(node.func, ast.Name) and not self.definitions[node.func.id]
            return is_global and not node.keywords and all(self._is_value(a) for a in node.args)
        return isinstance(node, ast.Name)

    def _look(self, run: _Run) -> None:
        """Find the variables that a run stores, and those that it reads before."""
        for line in run.lines:
            for node in ast.walk(line.value):  # type: ignore[attr-defined]
                name = node.id if isinstance(node, ast.Name) else ""
                if self.definitions[name] and name not in (*run.stored, *run.reads):
                    run.reads.append(name)
            run.stored += [n for n in _targets(line) if n not in run.stored]

    def _called(self, run: _Run, place: dict[str, _Run]) -> RunType:
        """The type of a run; puts a call in the place of its lines."""
        kept_by = {n: place[n] for n in run.reads if n in place and n in place[n].kept}
        plain = [n for n in run.reads if n not in kept_by]
        others = list(dict.fromkeys(kept_by.values()))
        kind = RunType(run, plain, [other.kept for other in others], self.namespace)
        self.namespace[run.name] = _Value(kind)
        text = f"{run.name}({', '.join([*plain, *(f'{other.name}_kept' for other in others)])})"
        results = [*run.seen, *([f"{run.name}_kept"] if run.kept else [])]
        call = ast.parse(f"{', '.join(results)} = {text}" if results else text).body
        for node in ast.walk(call[0]):  # errors name the first line of the run
            if isinstance(node, (ast.stmt, ast.expr)):
                node.lineno = node.end_lineno = run.lines[0].lineno
        run.lines = call
        return kind


def _nodes(node: Any) -> Iterator[ast.AST]:
    """A line and all in it, but not what is in a run."""
    yield node
    for _, value in ast.iter_fields(node):
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                yield from _nodes(part)


def _joined(body: list[Any]) -> list[ast.stmt]:
    """The lines of a block, with those of its runs."""
    result: list[ast.stmt] = []
    for line in body:
        if isinstance(line, _Run):
            result += line.lines
            continue
        for part in ("body", "orelse"):
            if getattr(line, part, None):
                setattr(line, part, _joined(getattr(line, part)))
        result.append(line)
    return result


def _targets(line: ast.stmt) -> list[str]:
    if not isinstance(line, ast.Assign):
        return []
    target: Any = line.targets[0]
    names: list[Any] = target.elts if isinstance(target, ast.Tuple) else [target]
    return [n.id for n in names]


class _Value:
    """A run in a module's namespace; Numba asks for its type."""

    def __init__(self, kind: RunType) -> None:
        self._numba_type_ = kind


class RunType(types.Callable, types.Opaque):  # type: ignore[misc]
    """The type of a run, which types and lowers calls of it."""

    def __init__(
        self, run: _Run, plain: list[str], kept: list[list[str]], namespace: dict[str, Any]
    ) -> None:
        """It takes `plain` variables one by one, and the `kept` ones of other runs in tuples."""
        self._lines, self._seen, self._kept = run.lines, run.seen, run.kept
        self._plain, self._tuples, self._namespace = plain, kept, namespace
        self._typed: dict[Any, tuple[Any, _Steps]] = {}
        super().__init__(f"{run.name}#{next(_numbers)}")
        target = cpu_target.target_context
        target.insert_func_defn([(self._lower, self, (types.VarArg(types.Any),))])

    def forget(self) -> None:
        """Remove the run from Numba's tables, which would keep it and its kernel for ever."""
        target = cpu_target.target_context
        target._defns.pop(self, None)
        target._get_constants._cache.pop((self,), None)

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        args = tuple(types.unliteral(a) for a in args)
        if args not in self._typed:
            self._typed[args] = self._type(context, args)
        return self._typed[args][0]

    def get_call_signatures(self) -> Any:
        return [found for found, _ in self._typed.values()], False

    def get_impl_key(self, sig: Any) -> Any:
        return self

    def _type(self, context: Any, args: Any) -> tuple[Any, _Steps]:
        steps = _Steps(context, self._namespace)
        for k, name in enumerate(self._plain):
            steps.variables[name] = steps.add(args[k], ("argument", k, None))
        for k, names in enumerate(self._tuples, len(self._plain)):
            for j, (name, part) in enumerate(zip(names, args[k].types, strict=True)):
                steps.variables[name] = steps.add(part, ("argument", k, j))
        for line in self._lines:
            steps.line(line)
        steps.seen = [steps.variables[n] for n in self._seen]
        steps.kept = [steps.variables[n] for n in self._kept]
        seen = [types.unliteral(steps.types[v]) for v in steps.seen]
        if steps.kept:
            seen.append(types.Tuple([types.unliteral(steps.types[v]) for v in steps.kept]))
        result = types.void if not seen else seen[0] if len(seen) == 1 else types.Tuple(seen)
        return signature(result, *args), steps

    def _lower(self, context: Any, builder: Any, sig: Any, args: Any) -> Any:
        steps = self._typed[tuple(types.unliteral(a) for a in sig.args)][1]
        values = steps.lower(context, builder, args)

        def plain(step: int) -> Any:
            kind = steps.types[step]
            return context.cast(builder, values[step], kind, types.unliteral(kind))

        results = [plain(v) for v in steps.seen]
        if steps.kept:
            kinds = types.Tuple([types.unliteral(steps.types[v]) for v in steps.kept])
            results.append(context.make_tuple(builder, kinds, [plain(v) for v in steps.kept]))
        if not results:
            return context.get_dummy_value()
        if len(results) == 1:
            return results[0]
        return context.make_tuple(builder, sig.return_type, results)


default_manager.register(RunType, models.OpaqueModel)


class _Steps:
    """The typed operations of a run, in order; each has a number and a type."""

    def __init__(self, context: Any, namespace: dict[str, Any]) -> None:
        self.context, self.namespace = context, namespace
        self.types: list[Any] = []
        self.steps: list[tuple[Any, ...]] = []
        self.variables: dict[str, int] = {}
        self.seen: list[int] = []
        self.kept: list[int] = []

    def add(self, kind: Any, step: tuple[Any, ...]) -> int:
        self.types.append(kind)
        self.steps.append(step)
        return len(self.steps) - 1

    def line(self, line: ast.stmt) -> None:
        if isinstance(line, ast.Expr):
            self.value(line.value)
            return
        assert isinstance(line, ast.Assign)
        parts = line.value.elts if isinstance(line.value, ast.Tuple) else [line.value]
        values = [self.value(part) for part in parts]
        self.variables.update(zip(_targets(line), values, strict=True))

    def value(self, node: ast.expr) -> int:
        if isinstance(node, ast.Constant):
            kind = self.context.resolve_value_type_prefer_literal(node.value)
            return self.add(kind, ("constant", node.value))
        if isinstance(node, ast.Name):
            if node.id in self.variables:
                return self.variables[node.id]
            found = self.global_value(node.id)
            return self.add(self.context.resolve_value_type(found), ("constant", found))
        if isinstance(node, ast.BinOp):
            return self.call(_OPERATORS[type(node.op)], [node.left, node.right])
        if isinstance(node, ast.Compare):
            return self.call(_OPERATORS[type(node.ops[0])], [node.left, node.comparators[0]])
        if isinstance(node, ast.UnaryOp):
            return self.call(_OPERATORS[type(node.op)], [node.operand])
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        return self.call(self.global_value(node.func.id), node.args)

    def global_value(self, name: str) -> Any:
        if name in self.namespace:
            return self.namespace[name]
        return getattr(builtins, name)

    def call(self, function: Any, operands: list[ast.expr]) -> int:
        values = [self.value(o) for o in operands]
        kinds = tuple(self.types[v] for v in values)
        kind = self.context.resolve_value_type(function)
        found = self.context.resolve_function_type(kind, kinds, {})
        if found is None:
            raise TypingError(f"{function} does not take {kinds}")
        return self.add(found.return_type, ("call", kind, found, values))

    def lower(self, context: Any, builder: Any, args: Any) -> list[Any]:
        values: list[Any] = []
        known: dict[Any, Any] = {}
        for kind, (what, *rest) in zip(self.types, self.steps, strict=True):
            if what == "argument":
                k, part = rest
                value = args[k] if part is None else builder.extract_value(args[k], part)
            elif what == "constant":
                value = context.get_constant_generic(builder, kind, rest[0])
            else:
                function, found, operands = rest
                made = known.get((function, found))
                if made is None:
                    made = known[function, found] = context.get_function(function, found)
                given = [(values[v], self.types[v]) for v in operands]
                value = made(builder, _cast(context, builder, given, found.args))
            values.append(value)
        return values


def _cast(context: Any, builder: Any, given: list[tuple[Any, Any]], kinds: Any) -> list[Any]:
    """Operands as the types of a signature; the last of these may be a tuple of all others."""
    rest = kinds[-1] if kinds and isinstance(kinds[-1], _STARS) else None
    if rest is not None:
        kinds = (*kinds[:-1], *rest.types)
    casts = [context.cast(builder, v, k, a) for (v, k), a in zip(given, kinds, strict=True)]
    if rest is None:
        return casts
    first = len(casts) - len(rest.types)
    return [*casts[:first], context.make_tuple(builder, rest, casts[first:])]
