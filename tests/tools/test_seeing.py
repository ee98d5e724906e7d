"""Pictures, rich reprs, drawings of plans and progress bars are well-formed and run no more than needed."""

from __future__ import annotations

import base64
import re
import sys
import types
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import cv2
import numpy as np
import pytest

import ndd
from ndd.tools import diagram, picture
from ndd.tools.explain import size_text
from ndd.tools.progress import Counter, progress
from tests.helpers import ragged, samples, worker_held

SVG = "{http://www.w3.org/2000/svg}"
GAP = picture.GAP_PX


def pixels(png: bytes) -> np.ndarray:
    """A PNG file as RGB, read by another library."""
    return cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]


# -- pictures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1, 3), (7, 5, 3), (64, 129, 3)])
def test_png_holds_the_pixels(shape):
    (image,) = samples([shape])
    assert np.array_equal(pixels(picture.png(image)), image)
    assert np.array_equal(pixels(picture.png(image[::-1, ::-1])), image[::-1, ::-1])


def test_show_writes_a_grid(tmp_path):
    x = ragged()  # 5×7, 4×9, 8×3
    shown = ndd.show(x, tmp_path / "out.png", columns=2)
    sheet = pixels((tmp_path / "out.png").read_bytes())
    assert np.array_equal(sheet, shown.array) and shown._repr_png_() == shown.png()
    assert (
        sheet.shape == (8 + GAP + 8, 9 + GAP + 9, 3)
        and repr(shown) == f"Picture({16 + GAP}×{18 + GAP})"
    )
    for image, (top, left) in zip(samples(), [(0, 0), (0, 9 + GAP), (8 + GAP, 0)]):
        height, width, _ = image.shape
        assert np.array_equal(sheet[top : top + height, left : left + width], image)
    assert (sheet[8 + GAP :, 9 + GAP :] == 255).all() and (sheet[8 : 8 + GAP] == 255).all()


def grey(values):
    """The picture that `show` makes of a row of pixels with one channel."""
    return ndd.show(np.asarray(values)[None, :, None]).array[0, :, 0].tolist()


def test_values_become_bytes():
    assert grey(np.uint8([0, 7, 255])) == [0, 7, 255]
    assert grey(np.float32([0, 0.5, 1])) == [0, 128, 255]
    assert grey(np.float64([0, 7, 254.6])) == [0, 7, 255]
    assert grey(np.float16([-1, 0, 3])) == [0, 64, 255]  # stretched
    assert grey(np.float32([np.nan, np.inf, 1])) == [0, 0, 255]
    assert grey(np.uint16([0, 256, 65535])) == [0, 1, 255]
    assert grey(np.int32([0, 1, 255])) == [0, 1, 255] and grey(np.int32([0, 500, 1000])) == [
        0,
        128,
        255,
    ]
    assert grey([False, True]) == [0, 255] and grey(np.zeros(3, np.float32)) == [0, 0, 0]
    whole = ndd.show([np.full((1, 1, 1), v, np.float32) for v in (-1, 1)], columns=2).array
    assert whole[0, 0, 0] == 0 and whole[0, -1, 0] == 255  # one scale for all


def test_layouts_channels_and_sequences():
    (image,) = samples([(4, 6, 3)])
    for x in (
        ndd.tensor(image), ndd.tensor(image, layout="HWC"), image,
        ndd.tensor(image.transpose(2, 0, 1), layout="CHW"), image.transpose(2, 0, 1),
        ndd.tensor(image[None], layout="NHWC"), ndd.flip(ndd.flip(ndd.tensor(image, layout="HWC"))),
    ):  # fmt: skip
        assert np.array_equal(ndd.show(x).array, image)
    assert np.array_equal(ndd.show(image[..., 0]).array, image[..., :1].repeat(3, 2))
    alpha = np.concatenate([image, np.full((4, 6, 1), 51, np.uint8)], axis=2)
    wanted = (image.astype(int) * 51 + 255 * 204 + 127) // 255  # on white
    assert np.array_equal(ndd.show(alpha).array, wanted)
    frames = samples([(3, 4, 6, 3), (2, 4, 6, 3)])
    sheet = ndd.show(ndd.batch(frames, layout="FHWC")).array  # a row for each sequence
    assert sheet.shape == (8 + GAP, 18 + 2 * GAP, 3)
    assert np.array_equal(sheet[4 + GAP :, 6 + GAP : 12 + GAP], frames[1][1])
    assert (sheet[4 + GAP :, 12 + 2 * GAP :] == 255).all()
    small = ndd.show(np.full((300, 200, 3), 9, np.uint8), size=100).array
    assert small.shape == (100, 66, 3) and (small == 9).all()


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros(3, np.uint8), "sample 0 of shape (3,) and layout None is no image"),
        (np.zeros((8, 8, 7), np.uint8), "is no image"),
        (ndd.zeros(shape=[2, 3], layout="XY"), "layout 'XY' is no image: wanted HWC, CHW or HW"),
    ],
)
def test_what_is_no_image_is_refused(x, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ndd.show(x)
    with pytest.raises(ValueError, match="`columns` must be positive"):
        ndd.show(np.zeros((2, 2, 3), np.uint8), columns=0)


# -- notebooks -----------------------------------------------------------------------------------


def thumbnails(text: str) -> np.ndarray:
    data = re.search(r'src="data:image/png;base64,([^"]+)"', text).group(1)
    return pixels(base64.b64decode(data))


def test_a_notebook_shows_images():
    text = ragged()._repr_html_()
    assert "Batch 3 × (5, 7, 3), (4, 9, 3), … u8 HWC cpu" in text
    sheet = thumbnails(text)
    assert np.array_equal(sheet[:5, :7], samples()[0])
    many = ndd.zeros(shape=[500, 300, 3], dtype=ndd.uint8, layout="HWC", batch_size=40)
    sheet = thumbnails(many._repr_html_())
    assert sheet.shape[:2] == (125 * 2 + GAP, 8 * (75 + GAP) - GAP)  # 16 small ones
    video = ndd.zeros(shape=[30, 20, 10, 3], dtype=ndd.uint8, layout="FHWC", batch_size=2)
    assert thumbnails(video._repr_html_()).shape[1] == 8 * (10 + GAP) - GAP
    for other in (ndd.tensor([[1, 2], [3, 4]]), ndd.batch([[1], [2]]), ndd.zeros(shape=[8, 8, 3])):
        assert other._repr_html_() is None  # text is enough, and numbers may be anything


def test_looking_runs_nothing_that_need_not_run():
    with ndd.EvalMode.deferred:
        x = ndd.flip(ndd.brightness(ragged(), brightness=2.0))
    for look in (repr, str, lambda x: x._repr_html_(), lambda x: x.tensors, ndd.explain):
        look(x)
        assert x._node.storage is None
    assert "pending" in repr(x) and "pending" in x._repr_html_() and "img" not in x._repr_html_()
    for part in ("u8", "HWC", "cpu", "(5, 7, 3)"):
        assert part in repr(x) and part in x._repr_html_()
    with worker_held():
        y = ndd.flip(ragged())  # eager: it will be computed, whether we look or not
        assert y._node.storage is None
        assert "img" in y._repr_html_()
    assert np.array_equal(thumbnails(y._repr_html_())[:5, :7], samples()[0][:, ::-1])
    x.evaluate()
    assert "img" in x._repr_html_() and "pending" not in repr(x)


def test_text_of_many_shapes_is_short():
    text = repr(ndd.batch([np.zeros(k, np.uint8) for k in range(40)]))
    assert "batch_size=40" in text and "(7,), …]" in text and "(8,)" not in text


# -- plans ---------------------------------------------------------------------------------------


@pytest.fixture
def plan():
    """A plan of four kernels and an opaque step, with an argument per sample and a value used twice."""
    with ndd.EvalMode.deferred:
        x = ndd.brightness(ragged(), brightness=ndd.batch([1.0, 2.0, 0.5]))
        x = ndd.resize(x, size=[16, 16])
        x = ndd.rotate(x, angle=30.0, keep_size=True)
        y = ndd.cast(x, dtype=ndd.float32)
        return ndd.explain(ndd.reshape(y * ndd.flip(y), shape=[-1]))


def boxes(root: ET.Element) -> list[dict[str, float]]:
    names = ("x", "y", "width", "height")
    kinds = ("kernel", "opaque", "input")
    found = [r for r in root.iter(f"{SVG}rect") if r.get("class") in kinds]
    return [{n: float(r.get(n)) for n in names} | {"kind": r.get("class")} for r in found]


def test_svg_has_boxes_ops_bytes_and_kernels(plan):
    assert [g.kind for g in plan.groups] == ["kernel"] * 4 + ["opaque"], str(plan)
    root = ET.fromstring(plan.svg())
    found = boxes(root)
    kinds = [b["kind"] for b in found]
    assert kinds.count("kernel") == len(plan.kernels) == 4 and kinds.count("opaque") == 1
    texts = ["".join(t.itertext()) for t in root.iter(f"{SVG}text")]
    for k, g in enumerate(plan.groups):
        assert f"[{k}] {g.kernel or 'opaque'}" in texts and g.moved in texts
        assert f"ends because {g.reason}" in texts
        for p in g.members:
            assert f"{plan.values[p].op}  {plan.values[p].text}" in texts
    assert plan.savings in texts and "saved" in plan.savings
    ops = [r for r in root.iter(f"{SVG}rect") if r.get("class") == "op"]
    assert len(ops) == sum(len(g.members) for g in plan.groups)
    links = [a.get("href") for a in root.iter(f"{SVG}a")]
    assert links == [g.source.as_uri() for g in plan.groups if g.source]
    # what flows between boxes says how much it is
    between = [p for g in plan.groups for p in g.reads if not plan.values[p].is_input]
    assert len(between) == 4 and {size_text(plan.values[p].nbytes) for p in between} <= {*texts}


def test_svg_boxes_lie_inside_and_apart(plan):
    root = ET.fromstring(plan.svg())
    found = boxes(root)
    width, height = (float(root.get(n)) for n in ("width", "height"))
    for b in found:
        assert b["x"] >= 0 and b["y"] >= 0
        assert b["x"] + b["width"] <= width and b["y"] + b["height"] <= height
    for i, a in enumerate(found):
        for b in found[:i]:
            beside = a["x"] >= b["x"] + b["width"] or b["x"] >= a["x"] + a["width"]
            below = a["y"] >= b["y"] + b["height"] or b["y"] >= a["y"] + a["height"]
            assert beside or below, (a, b)
    tops = [b["y"] for b in found if b["kind"] != "input"]
    assert tops == sorted(tops)  # data flow down


class Page(HTMLParser):
    """A parser that tracks open tags and collects the text of every <pre>."""

    VOID = ("br", "img", "meta")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.code: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "pre":
            assert self.open[-2] == "details"
            self.code.append("")
            self.ids.append(dict(attrs)["id"])
        if tag == "a":
            self.links.append(dict(attrs)["href"])

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "pre":
            self.code[-1] += data


def test_html_has_the_source_one_click_away(plan):
    page = Page()
    page.feed(plan._repr_html_())
    page.close()
    assert page.open == [] and page.tags.count("svg") == 1
    assert page.tags.count("details") == page.tags.count("summary") == len(plan.kernels)
    assert page.links == [f"#{i}" for i in page.ids] and len(set(page.ids)) == len(page.ids)
    for code, g in zip(page.code, (g for g in plan.groups if g.spec)):
        assert code == g.code and f"def {g.kernel}(" in code
        compile(code, g.kernel, "exec")


def test_source_is_what_runs():
    x = ndd.hue(ragged(), hue=37.0).evaluate()
    (group,) = ndd.explain(x).groups
    assert group.source.read_text() == group.code


def test_text_is_escaped(monkeypatch):
    with ndd.EvalMode.deferred:
        found = ndd.explain(ndd.tensor([1, 2]) < 3)
    found.groups[0].reason = 'a<b & "c" -- ]]>'
    root = ET.fromstring(found.svg())
    assert any("".join(t.itertext()).endswith('a<b & "c" -- ]]>') for t in root.iter(f"{SVG}text"))
    Page().feed(found._repr_html_())


def test_long_texts_do_not_make_wide_boxes():
    with ndd.EvalMode.deferred:
        found = ndd.explain(ndd.tensor([1, 2]) + 3)
    found.groups[0].reason = "x" * 500
    root = ET.fromstring(found.svg())
    assert float(root.get("width")) < 800
    assert any("x" * 500 in (t.text or "") for t in root.iter(f"{SVG}title"))
    assert max(len(t.text) for t in root.iter(f"{SVG}text")) == diagram.MAX_CHARS


def test_explain_of_nothing_is_refused():
    with pytest.raises(TypeError, match="explain: wanted a Tensor or a Batch, got nothing"):
        ndd.explain()
    assert ET.fromstring(ndd.explain(ndd.tensor([1])).svg()) is not None  # nothing to run


# -- progress ------------------------------------------------------------------------------------


@pytest.fixture
def bars(monkeypatch):
    """A stand-in for tqdm that records its calls."""
    told = []

    class Tqdm:
        def __init__(self, total, desc):
            told.append((total, desc))

        def update(self):
            told.append("item")

        def close(self):
            told.append("close")

    module = types.ModuleType("tqdm.auto")
    module.tqdm = Tqdm
    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", module)
    return told


def test_an_epoch_shows_its_progress(bars, tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.bin").write_bytes(b"x")
    reader = ndd.readers.File(files=sorted(tmp_path.iterdir()), name="train")
    assert len(list(reader.next_epoch(batch_size=1, progress=True))) == 3
    assert bars == [(3, "train"), "item", "item", "item", "close"]
    bars.clear()
    for _ in reader.next_epoch(batch_size=1, progress=True):
        break
    assert bars == [(3, "train"), "close"]
    bars.clear()
    list(reader.next_epoch())
    assert bars == []


def test_progress_without_tqdm(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    assert list(progress("ab", 2, "work")) == ["a", "b"]
    assert capsys.readouterr().err == ""  # not a terminal
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    counter = Counter(2, "work")
    counter.update()
    counter.close()
    assert capsys.readouterr().err == "\rwork 1/2\n"
