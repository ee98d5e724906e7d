"""Generated source as text, so that a change of a code generator shows up as a readable diff.

`NDD_UPDATE_GOLDEN=1 pytest tests/codegen/test_golden.py` updates the files.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

import ndd
from ndd.fusion.plan import groups
from ndd.fusion.plan.planner import PLANNER
from ndd.fusion.plan.program import collect
from ndd.fusion.plan.steps import KernelStep
from ndd.kernels.cpu import render as cpu
from ndd.kernels.gpu import render as gpu

GOLDEN = Path(__file__).parent / "golden"
IMAGE = np.zeros((4, 5, 3), np.uint8)


def _image():
    return ndd.batch([IMAGE, IMAGE], layout="HWC")


PROGRAMS = {
    "brightness": lambda: ndd.brightness(_image(), brightness=1.5),
    "flip_crop_normalize": lambda: ndd.crop_mirror_normalize(
        ndd.flip(_image()), crop=[2, 2], mean=[1.0, 2.0, 3.0], std=[2.0]
    ),
    "pad": lambda: ndd.pad(_image(), align=[4, 4, 1]),
    "broadcast_add": lambda: ndd.tensor(np.zeros((3, 4), np.float32)) + ndd.tensor([1.0] * 4),
}


def spec_of(program):
    with ndd.EvalMode.deferred:
        node = program()._node
        steps = PLANNER.make_plan(collect([node]), fuse=True).steps
    assert len(steps) == 1 and isinstance(steps[0], KernelStep)
    return steps[0].spec


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("backend", [cpu, gpu], ids=["cpu", "gpu"])
def test_source_is_as_expected(name, backend, monkeypatch):
    monkeypatch.setattr(groups, "looks_up_many", lambda: False)  # whatever this CPU can do
    folder = GOLDEN / ("cpu" if backend is cpu else "gpu")
    source = backend.render(spec_of(PROGRAMS[name]), name)
    compile(source, name, "exec")
    path = folder / f"{name}.py"
    if os.environ.get("NDD_UPDATE_GOLDEN"):
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    assert source == path.read_text()


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_integers_between_floats_stay_floats(dtype: str) -> None:
    """A float that is rounded and used as a float again is never converted to an integer; the bits stay."""
    limit = float(np.iinfo(dtype).max)
    near = [limit - 0.5, limit, limit + 0.5, 1e30, np.inf, np.nan, -np.inf, -1.0, -0.5, -0.0]
    values = np.array([*near, 0.0, 0.49999997, 0.5, 1.5, 2.5, 3.5, 0.99999994], np.float32)
    with ndd.EvalMode.deferred:
        whole = ndd.cast(ndd.tensor(values), dtype=getattr(ndd, dtype))
        fused = ndd.cast(whole, dtype=ndd.float32) / np.float32(3.0)
        text, found = str(ndd.explain(fused)), np.asarray(fused)
        wanted = np.asarray(whole).astype(np.float32) / np.float32(3.0)
    source = Path(re.findall(r"source (\S+\.py)", text)[0]).read_text()
    assert "trunc_f32" in source and f"u{np.dtype(dtype).itemsize * 8}(i32" not in source
    assert found.tobytes() == wanted.tobytes()
