"""Errors for names that do not exist: an unknown name enters, an error with a suggestion leaves."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, TypeVar

from ..kernels.common.memo import Memo
from .errors import user_site

F = TypeVar("F", bound=Callable[..., Any])

# Names of upstream's pipeline mode and of other libraries, and what to write instead.
_ARGUMENTS = {
    "batch_size": "the batch size belongs to next_epoch(batch_size=…)",
    "num_threads": "threads are set for all: ndd.set_num_threads(n), or EvalContext(num_threads=n)",
    "seed": "seed the generator: ndd.random.set_seed(n), or rng=ndd.random.RNG(seed=n)",
}
_NAMES = {
    "Pipeline": "there are no pipelines: call the ops in a loop over reader.next_epoch(…)",
    "pipeline_def": "there are no pipelines: call the ops in a loop over reader.next_epoch(…)",
    "fn": "ops are functions of ndd itself: fn.resize is ndd.resize",
}
_ATTRIBUTES = {
    "as_array": "use np.asarray(x) of a tensor, or of ndd.as_tensor(batch)",
    "as_cpu": "use .cpu()",
    "as_tensor": "use ndd.as_tensor(x)",
    "at": "use .tensors[i], or .select(i)",
    "numpy": "use np.asarray(x) of a tensor, or of ndd.as_tensor(batch)",
    "to": "use .to_device(device), .cpu(), .gpu(), or ndd.cast(x, dtype=…)",
    "astype": "use ndd.cast(x, dtype=…)",
    "cuda": "use .gpu()",
    "mean": "use ndd.reductions.mean(x)",
    "sum": "use ndd.reductions.sum(x)",
    "max": "use ndd.reductions.max(x)",
    "min": "use ndd.reductions.min(x)",
    "std": "use ndd.reductions.std_dev(x, ndd.reductions.mean(x))",
    "reshape": "use ndd.reshape(x, shape=[…])",
    "permute": "use ndd.transpose(x, perm=[…])",
    "transpose": "use ndd.transpose(x, perm=[…])",
    "T": "use ndd.transpose(x)",
}


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is equal apart from case and underscores, or else a close match."""
    import difflib

    by_lower = {k.lower().replace("_", ""): k for k in known}
    wanted = name.lower().replace("_", "")
    if wanted in by_lower:
        return by_lower[wanted]
    close = difflib.get_close_matches(wanted, by_lower, n=1)
    return by_lower[close[0]] if close else None


def _meant(found: str | None) -> str:
    return f"; did you mean `{found}`?" if found else ""


# -- arguments -----------------------------------------------------------------------------------


def unexpected(function: str, unknown: Iterable[str], known: Iterable[str]) -> TypeError:
    """The error for a call with an argument that does not exist."""
    name = next(iter(unknown))
    hint = f"; {_ARGUMENTS[name]}" if name in _ARGUMENTS else _meant(nearest(name, known))
    return TypeError(
        f"{function}() got an unexpected keyword argument {name!r}{hint} (called at {user_site()})"
    )


def with_options_of(base: Callable[..., Any], function: F, name: str) -> F:
    """Wrap a function that passes its `**options` to `base`: the wrapper shows the parameters of
    both and suggests a name for an unknown argument."""
    own = inspect.signature(function)
    found = {n: p for n, p in own.parameters.items() if p.kind is not p.VAR_KEYWORD}
    if len(found) < len(own.parameters):
        for n, p in inspect.signature(base).parameters.items():
            found.setdefault(n, p)
    known = sorted(found.values(), key=lambda p: p.kind)

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        unknown = [k for k in kwargs if k not in found]
        if unknown:
            raise unexpected(name, unknown, found)
        return function(*args, **kwargs)

    checked.__signature__ = own.replace(parameters=known)  # type: ignore[attr-defined]
    return checked  # type: ignore[return-value]


# Python's warning registry of each file. Every cell of a notebook counts as a file.
_warned: Memo[str, dict[Any, int]] = Memo("lines that were warned of", 1024)


def one_draw(op: str, argument: str, draw: str, count: int) -> None:
    """Warn, once per line, that all samples of a batch get the same random number."""
    site = user_site()
    warnings.warn_explicit(
        f"{op}: `{argument}` is one random value for all {count} samples; for one each, write "
        f"ndd.{draw}(batch_size={count}, …); if one for all is meant, "
        f"ndd.Batch.broadcast(value, {count})",
        UserWarning,
        site.file,
        site.line,
        registry=_warned.setdefault(site.file, {}),
    )


# -- attributes ----------------------------------------------------------------------------------


def missing(module: ModuleType, name: str) -> AttributeError:
    """The error for a name that a module does not have."""
    text = f"module {module.__name__!r} has no attribute {name!r}"
    if not name.startswith("_"):
        found = nearest(name, module.__all__)
        if found:
            text += _meant(f"{module.__name__}.{found}")
        elif name in _NAMES:
            text += f"; {_NAMES[name]}"
    return AttributeError(text)


def suggest_names(*modules: ModuleType) -> None:
    """Let these modules suggest names, except those with a `__getattr__` of their own."""
    for module in modules:
        if "__getattr__" not in vars(module):
            module.__getattr__ = functools.partial(_absent, module)  # type: ignore[method-assign]


def _absent(module: ModuleType, name: str) -> Any:
    raise missing(module, name)


def no_attribute(value: object, name: str) -> AttributeError:
    """The error for an attribute that a Tensor or a Batch does not have."""
    kind = type(value).__name__
    text = f"{kind!r} object has no attribute {name!r}"
    if name in _ATTRIBUTES:
        return AttributeError(f"{text}; {_ATTRIBUTES[name]}")
    if not name.startswith("_"):
        found = nearest(name, (n for n in dir(type(value)) if not n.startswith("_")))
        text += _meant(found)
    return AttributeError(text)
