"""A hook for mkdocs: makes the reference pages of all ops from their definitions.

It also makes a page for every source file that a page links to, so that these links work
wherever the site is hosted.
"""

from __future__ import annotations

import inspect
import re
import sys
from enum import Enum
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # mkdocs does not put the current folder on the path of hooks

import ndd  # noqa: E402
from ndd.cli import gallery  # noqa: E402
from ndd.core.schema import OPS, REQUIRED, OpDef, Param, type_text  # noqa: E402

# Families in the order of the pages: title, and modules of ndd/ops.
FAMILIES = {
    "decoding": (
        "Decoding",
        "images.image_decoders images.inflate audio.audio_decoder video.video_decoder",
    ),
    "resampling": (
        "Resize, warp, displace",
        "resample.resize resample.warp resample.perspective resample.displace random.crop",
    ),
    "geometry": (
        "Crop, flip, pad, paste",
        "geometry.crops geometry.paste geometry.crop_mirror_normalize random.roi_crop",
    ),
    "filters": (
        "Blur, filters, morphology",
        "filters.blur filters.laplacian filters.correlate filters.debayer filters.morphology "
        "filters.median",
    ),
    "reductions": ("Reductions", "reduce.axis_reductions reduce.normalize"),
    "colour": (
        "Colour, masks, tables",
        "pointwise.color pointwise.masks histograms.equalize histograms.clahe "
        "images.jpeg_distortion images.dump",
    ),
    "sound": (
        "Sound",
        "audio.spectra audio.mel audio.levels audio.resampling audio.silence",
    ),
    "random": ("Random numbers and noise", "random.draws random.noises"),
    "augmentation": ("Automatic augmentation", "augment.automatic"),
    "boxes": (
        "Boxes and transforms",
        "boxes.bounding_boxes boxes.box_crop boxes.encoder boxes.affine_matrices",
    ),
    "segmentation": (
        "Label maps and polygons",
        "segmentation.object_box segmentation.mask_pixel segmentation.polygons",
    ),
    "sequences": ("Sequences", "shape.sequence_axis images.optical_flow"),
    "shapes": (
        "Types, shapes, creation",
        "pointwise.conversion shape.creation shape.reshape",
    ),
}
KINDS = {
    "data": "input",
    "arg": "number, also per sample",
    "geometry": "number, also per sample; read at the call",
    "static": "choice",
}


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages and pictures to the site."""
    from mkdocs.structure.files import File

    def add(uri: str, content: str | bytes) -> None:
        files.append(File.generated(config, uri, content=content))

    for name, text in pages().items():
        add(f"reference/{name}.md", text)
    for name, png in pictures().items():
        add(f"reference/images/{name}.png", png)
    for path in linked_sources():
        add(f"source/{path}.md", source_page(path))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Redirect links to files of the repository to the pages made for them."""
    if page.file.src_uri.startswith(("reference/", "source/")):
        return markdown
    return re.sub(r"\]\(\.\./([\w/.]+\.\w+)\)", r"](source/\1.md)", markdown)


# -- ops -----------------------------------------------------------------------------------------


def pages() -> dict[str, str]:
    """The text of each reference page, by name."""
    found = {"index": overview(), "tensors": handles(), "other": other_names()}
    for family, (title, _) in FAMILIES.items():
        found[family] = "\n\n".join([f"# {title}", *map(entry, members(family))])
    return found


def members(family: str) -> list[OpDef]:
    """The ops of a family, sorted by name."""
    chosen = FAMILIES[family][1].split()
    return sorted((op for op in OPS.values() if module_of(op) in chosen), key=lambda op: op.name)


def module_of(op: OpDef) -> str:
    """The module that defines an op, relative to ndd.ops."""
    return op.body.__module__.removeprefix("ndd.ops.")


def overview() -> str:
    """The page with tables of all ops."""
    lines = [
        "# Ops",
        f"All {len(OPS)} ops, from their definitions. Every op takes a Tensor or a Batch, ragged "
        "or not, and `batch_size` and `device`; arguments that are numbers may differ from sample "
        "to sample. All run on the CPU and, generated from the same definition, on the GPU: "
        "simulated in the tests, [not run on hardware yet](../gpu.md). Arithmetic and `ndd.math` "
        "are in [other names](other.md).",
    ]
    for family, (title, _) in FAMILIES.items():
        lines += [f"## {title}", "| op | |\n|---|---|"]
        rows = (f"| [`{op.name}`]({family}.md#{anchor(op)}) | {summary(op)} |"
                for op in members(family))  # fmt: skip
        lines[-1] += "\n" + "\n".join(rows)
    return "\n\n".join(lines)


def anchor(op: OpDef) -> str:
    return op.name.replace(".", "-")


def summary(op: OpDef) -> str:
    return " ".join(op.doc.split("\n\n")[0].split())


def entry(op: OpDef) -> str:
    """The entry of one op: signature, picture, text, facts, arguments, example."""
    parts = [f"## ndd.{op.name} {{ #{anchor(op)} }}", op.doc, f"```text\n{signature(op)}\n```"]
    if gallery.is_image_op(op):
        parts.append(f"`{gallery.call_text(op.name)}`, photos above, results below:")
        parts.append(f"![{op.name}](images/{op.name}.png)")
    parts += [facts(op), arguments(op)]
    if op.sample:
        shown = (f">>> {s}" if not s.startswith("=") else s[1:].strip()
                 for s in op.sample.splitlines())  # fmt: skip
        parts.append("```pycon\n>>> import ndd\n" + "\n".join(shown) + "\n```")
    return "\n\n".join(parts)


def signature(op: OpDef) -> str:
    """The signature of an op; a long one has one argument per line."""
    found = inspect.signature(op.public).parameters.values()
    texts = [str(p.replace(default=p.empty)) for p in found]
    texts = [t if p.default is p.empty else f"{t}={written(p.default)}"
             for t, p in zip(texts, found, strict=True)]  # fmt: skip
    first = next((i for i, p in enumerate(found) if p.kind is p.KEYWORD_ONLY), len(texts))
    if not op.variadic:
        texts.insert(first, "*")
    line = f"ndd.{op.name}({', '.join(texts)})"
    return line if len(line) < 90 else f"ndd.{op.name}(\n    " + ",\n    ".join(texts) + ",\n)"


def written(value: Any) -> str:
    """A default value as users write it."""
    if isinstance(value, ndd.DType):
        return next(name for name in ndd.__all__ if getattr(ndd, name) is value)
    return value.name if isinstance(value, Enum) else repr(value)


def facts(op: OpDef) -> str:
    """A list of the devices, layouts, types and results of an op."""
    layouts = ", ".join(f"`{n}`" for n in op.layouts) or "any"
    refused = ", ".join(f"`{d}`" for d in op.rejects)
    moved = ", ".join(f"`{d}`" for d in op.nearest_only)
    types = f"all but {refused}" if refused else "as its arguments allow"
    lines = [
        "- devices: CPU, GPU ([simulated only](../gpu.md))"
        + ("; inputs are in host memory" if op.mixed else ""),
        f"- layouts: {layouts}",
        f"- types: all; {moved} only with `INTERP_NN`" if moved else f"- types: {types}",
    ]  # fmt: skip
    if op.needs_channels:
        lines.append(f"- channels: {op.needs_channels}")
    if isinstance(op.outputs, str):
        lines.append(f"- results: one; two with `{op.outputs}`")
    elif op.outputs != 1:
        lines.append(f"- results: {op.outputs or 'depends on the arguments'}")
    return "\n".join(lines)


def arguments(op: OpDef) -> str:
    """A Markdown table of the arguments of an op."""
    rows = ["| argument | type | default | |", "|---|---|---|---|"]
    for p in op.params:
        default = "required" if p.default is REQUIRED else f"`{written(p.default)}`"
        type_ = type_text(p).replace("|", "or")
        rows.append(f"| `{p.name}` | {type_} | {default} | {described(p)} |")
    return "\n".join(rows)


def described(p: Param) -> str:
    """The description of a parameter and the values that it accepts."""
    frames = " One per frame, too." if p.per_frame else ""
    return f"{escaped(p.doc)}{frames} *({KINDS[p.kind]})*"


def escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def pictures() -> dict[str, bytes]:
    """A PNG file for every image op, by name."""
    x = gallery.photos()
    names = sorted(op.name for op in OPS.values() if gallery.is_image_op(op))
    results = {name: gallery.apply(name, x) for name in names}
    return {name: gallery.picture(x, result).png() for name, result in results.items()}


# -- Tensor and Batch ----------------------------------------------------------------------------


def handles() -> str:
    """The page of the methods and properties of Tensor and Batch."""
    parts = [
        "# Tensor and Batch",
        "All attributes and methods. The [guide](../tensors.md) shows how they are used.",
    ]
    for kind in (ndd.Tensor, ndd.Batch):
        parts.append(f"## ndd.{kind.__name__}\n\n```text\n{inspect.getdoc(kind)}\n```")
        names = [n for n in dir(kind) if not n.startswith("_")]
        is_property = {n: isinstance(inspect.getattr_static(kind, n), property) for n in names}
        rows = [f"| `{n}` | {first_line(getattr(kind, n))} |" for n in names if is_property[n]]
        parts.append("\n".join(["| property | |", "|---|---|", *rows]))
        for name in names:
            if not is_property[name]:
                method = getattr(kind, name)
                text = f"{kind.__name__}.{name}{shown_signature(method)}"
                parts.append(
                    f"### {text.split('(')[0]}\n\n```text\n{text}\n\n{inspect.getdoc(method)}\n```"
                )
        others = ", ".join(f"`{n}`" for n in OPERATIONS[kind])
        parts.append(f"It also has the operators {others}.")
    return "\n\n".join(parts)


_OPERATORS = (
    "+ - * / // % ** & | ^ << >>".split(),
    "< <= > >= == !=".split(),
    ["~x", "-x", "abs(x)"],
)
_COMMON = [sign for signs in _OPERATORS for sign in signs]
OPERATIONS = {
    ndd.Tensor: [*_COMMON, "x[…]", "bool(x)", "int(x)", "float(x)", "iter(x)"],
    ndd.Batch: [*_COMMON, "len(x)", "iter(x)"],
}


def first_line(value: Any) -> str:
    return escaped((inspect.getdoc(value) or "").split("\n\n")[0])


def shown_signature(method: Any) -> str:
    """The parameters of a method, without `self` and without types."""
    found = inspect.signature(method).parameters.values()
    plain = [p.replace(annotation=p.empty) for p in found if p.name != "self"]
    return str(inspect.Signature(plain))


# -- the other public names ----------------------------------------------------------------------


def other_names() -> str:
    """The page of public classes and functions that are not ops, with their docstrings."""
    parts = ["# Other names", "Public names that are not ops, with their docstrings."]
    for prefix, module in (("", ndd), ("math.", ndd.math), ("readers.", ndd.readers),
                           ("tfrecord.", ndd.tfrecord),
                           ("checkpoint.", ndd.checkpoint), ("random.", ndd.random),
                           ("decoders.", ndd.decoders), ("io.file.", ndd.io.file)):  # fmt: skip
        for name in sorted(module.__all__):
            value = getattr(module, name)
            is_op = f"{prefix}{name}" in OPS
            if callable(value) and not is_op and inspect.getdoc(value):
                parts.append(f"## ndd.{prefix}{name}\n\n```text\n{inspect.getdoc(value)}\n```")
    return "\n\n".join(parts)


# -- source --------------------------------------------------------------------------------------


def linked_sources() -> list[str]:
    """Paths, from the root, of files outside of docs/ that pages link to."""
    found: set[str] = set()
    for page in (ROOT / "docs").glob("*.md"):
        found.update(re.findall(r"\]\(\.\./([\w/.]+\.\w+)\)", page.read_text()))
    return sorted(found)


def source_page(path: str) -> str:
    """A page that shows a file verbatim: links in it would not work from this page."""
    text = (ROOT / path).read_text()
    language = "python" if path.endswith(".py") else "text"
    # Source would flood the search results.
    return f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n````{language}\n{text}\n````\n"
