"""The public names of upstream's dynamic mode, its classes, their members and all signatures, beside ours."""

from __future__ import annotations

import importlib
import inspect
import re
import types
from functools import reduce

import nvidia.dali.experimental.dynamic as dali
import nvidia.dali.types as dali_types
import pytest

import docs.names as docs_names
import ndd
from ndd.core.schema import OPS, REQUIRED

UPSTREAM = "nvidia.dali.experimental.dynamic"
# Names that we do not have yet, with the reason. A name that exists must not be here.
MISSING: dict[str, str] = {}  # name → why it is not here
# What upstream's modules import for themselves.
IMPORTED = {
    "DeviceLike", "NoReturn", "TypeAlias", "Union", "local", "torch",
    "checkpoint.annotations", "checkpoint.Any", "checkpoint.NamedTuple", "checkpoint.Optional",
}  # fmt: skip
NODES = [f"pytorch.nodes.{n}" for n in ("DictMapper", "Reader", "ToTorch")]
CLASSES = (
    "Tensor", "Batch", "DType", "Device", "EvalContext", "EvalMode", "ExternalSource", "Stream",
    "ThreadPool", "random.RNG", "checkpoint.Checkpoint", "readers.File", *NODES,
)  # fmt: skip
# Members that are no part of the interface. Python adds `__slotnames__` to a class when one of its
# objects is copied for the first time.
PRIVATE = {"__final__", "__slotnames__"}


def public_names(module, prefix=""):
    """Dotted names of all public objects in upstream's modules."""
    for name in sorted(n for n in vars(module) if not n.startswith("_")):
        value = getattr(module, name)
        if not isinstance(value, types.ModuleType):
            yield prefix + name
        elif value.__name__ == f"{module.__name__}.{name}":
            yield from public_names(value, f"{prefix}{name}.")


def find(root, name):
    return reduce(getattr, name.split("."), root)


def has(name):
    try:
        find(ndd, name)
    except AttributeError:
        return False
    return True


# The module of the nodes is full of what it imports: only its own classes count.
NAMES = [
    n for n in public_names(dali) if n not in IMPORTED and not n.startswith("pytorch.")
] + NODES


def test_all_names_are_here_or_listed_as_missing():
    absent = [n for n in NAMES if not has(n)]
    assert sorted(absent) == sorted(MISSING), (
        "MISSING must list exactly the names that are not here"
    )
    assert all(MISSING.values())
    assert len(NAMES) - len(absent) > 175


def test_the_migration_page_lists_these_names():
    assert sorted(docs_names.upstream_names()) == sorted(NAMES)


def test_modules():
    for name in sorted({n.rpartition(".")[0] for n in NAMES} - {""}):
        module = importlib.import_module(f"ndd.{name}")
        assert module is find(ndd, name)
        assert importlib.import_module(f"{UPSTREAM}.{name}") is not None


def parameters(function):
    found = inspect.signature(function).parameters.values()
    return [p for p in found if not p.name.startswith("_")]


def compare_signatures(ours, theirs, about):
    """Every upstream call works here: the same keywords, the same positions."""
    mine = {p.name: p for p in parameters(ours)}
    takes_many = any(p.kind is p.VAR_POSITIONAL for p in mine.values())
    positional = [
        p for p in mine.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    for i, p in enumerate(parameters(theirs)):
        if p.kind is p.POSITIONAL_ONLY:
            assert takes_many or i < len(positional), f"{about}: no input {i}"
        elif p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            assert p.name in mine, f"{about}: no argument {p.name}"
            if p.kind is p.POSITIONAL_OR_KEYWORD and not takes_many:
                assert positional[i].name == p.name, f"{about}: {p.name} is not at position {i}"
            needed = mine[p.name].default is p.empty
            assert not needed or p.default is p.empty, f"{about}: {p.name} became required"


FUNCTIONS = [n for n in NAMES if n not in MISSING and callable(find(dali, n))
             and not isinstance(find(dali, n), (type, dali.DType))]  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_take_the_same_arguments(name):
    ours, theirs = find(ndd, name), find(dali, name)
    try:
        compare_signatures(ours, theirs, name)
    except AssertionError as error:
        if "became required" not in str(error):
            raise
        argument = str(error).split(": ")[1].split()[0]
        # Upstream writes `=None` for arguments that it needs; calling without one fails there, too.
        with (
            pytest.raises(Exception, match=rf"(?i){argument}|required|argument"),
            dali.EvalMode.sync_cpu,
        ):
            theirs(dali.zeros(shape=[2, 2, 3], dtype=dali.uint8, layout="HWC")).evaluate()


@pytest.mark.parametrize("name", CLASSES)
def test_classes_have_the_same_members(name):
    ours, theirs = find(ndd, name), find(dali, name)
    for member in dir(theirs):
        is_special = member.startswith("__") and member.endswith("__")
        if member in PRIVATE or (member.startswith("_") and not is_special):
            continue
        assert hasattr(ours, member), f"{name}.{member} is missing"
        mine, other = (inspect.getattr_static(c, member) for c in (ours, theirs))
        assert isinstance(mine, property) == isinstance(other, property) or not callable(mine), (
            member
        )
        if not member.startswith("_") or member == "__init__":
            try:
                inspect.signature(getattr(theirs, member))
            except (TypeError, ValueError):
                continue
            compare_signatures(getattr(ours, member), getattr(theirs, member), f"{name}.{member}")


def test_element_types_have_the_same_facts():
    for name in NAMES:
        theirs = find(dali, name)
        if isinstance(theirs, dali.DType):
            ours = find(ndd, name)
            for fact in ("bits", "bytes", "name", "exponent_bits", "significand_bits"):
                assert getattr(ours, fact) == getattr(theirs, fact), (name, fact)
            assert (str(ours), repr(ours), ours.kind.name) == (
                str(theirs),
                repr(theirs),
                theirs.kind.name,
            )
            assert ours.type_id == theirs.type_id and hash(ours) == hash(ndd.dtype(name))


def test_eval_modes_compare_alike():
    assert [m.name for m in ndd.EvalMode] == [m.name for m in dali.EvalMode]
    assert list(ndd.EvalMode.__members__) == list(dali.EvalMode.__members__)
    assert [m.value for m in ndd.EvalMode] == [m.value for m in dali.EvalMode]


# -- arguments of ops: upstream's docstrings say what they accept, and their defaults -----------------

DOCUMENTED = re.compile(r"^(\w+) : (.*?)(?:, default = `(.*)`)?$", re.MULTILINE)
# Upstream distinguishes giving the default from leaving it out: `crop(crop_d=0)` needs `crop_w` as
# well, and `rotate(size=[])` is an error. So do we, which takes None.
RESIZES = (
    "interp_type mag_filter min_filter mode resize_longer resize_shorter resize_x resize_y resize_z"
)
LEFT_OUT = {
    "resize": RESIZES, "experimental.resize": RESIZES,
    "resize_crop_mirror": f"{RESIZES} crop_d crop_h crop_w",
    "tensor_resize": "interp_type mag_filter min_filter",
    "random_resized_crop": "interp_type mag_filter min_filter",
    "crop": "crop_d crop_h crop_w", "crop_mirror_normalize": "crop_d crop_h crop_w",
    "decoders.image_crop": "crop_d crop_h crop_w", "decoders.image_slice": "axes axis_names",
    "slice": "axes axis_names", "cat": "axis", "one_hot": "axis",
    "erase": "axes axis_names normalized normalized_anchor normalized_shape",
    "warp_affine": "matrix size", "experimental.warp_perspective": "matrix size",
    "rotate": "size", "bbox_rotate": "size", "laplacian": "scale", "random_bbox_crop": "ltrb",
    "brightness_contrast": "contrast_center", "contrast": "contrast_center",
    "segmentation.random_mask_pixel": "threshold", "segmentation.random_object_bbox": "background",
}  # fmt: skip
# Upstream's documentation says that these accept tensors.
ONE_FOR_ALL = {
    ("squeeze", "axes"),  # a tensor is ignored or refused by upstream
    ("decoders.video", "pad_mode"),  # a choice
}


def documented(name):
    """Arguments of an op upstream: name, accepted types, default or an empty string."""
    try:
        text = find(dali, name).__doc__
    except AttributeError:
        return []
    return DOCUMENTED.findall(text.split("Keyword args")[1]) if "Keyword args" in text else []


DESCRIBED = [name for name in OPS if documented(name)]


def test_most_ops_are_described_upstream():
    assert len(DESCRIBED) > 110 and set(LEFT_OUT) <= set(DESCRIBED)


def plain(value):
    """A default as numbers or text, the same for both libraries."""
    if isinstance(value, ndd.DType):
        return value.type_id.name
    if isinstance(value, (list, tuple)):
        values = [plain(v) for v in value]
        return values[0] if values and all(v == values[0] for v in values) else values
    if hasattr(value, "name"):
        return value.name
    return round(float(value), 5) if isinstance(value, (bool, int, float)) else value


@pytest.mark.parametrize("name", DESCRIBED)
def test_arguments_have_the_same_defaults(name):
    ours, left_out = {p.name: p for p in OPS[name].params}, LEFT_OUT.get(name, "").split()
    for argument, accepts, default in documented(name):
        if argument not in ours:
            assert argument in ("batch_size", "device"), argument
            continue
        p = ours[argument]
        if "Tensor/Batch" in accepts and (name, argument) not in ONE_FOR_ALL:
            assert p.kind != "static", f"{argument} may differ between samples"
        if not default:
            assert (p.default is REQUIRED) <= ("optional" not in accepts), argument
            continue
        theirs = eval(default, dict(vars(dali_types)))
        if argument in left_out:
            left_out.remove(argument)
            assert p.default is None and p.doc
        else:
            assert plain(p.default) == plain(theirs), argument
    assert not left_out, "LEFT_OUT must list only arguments with a default upstream"
