"""Generated source as text: a change of a code generator shows up as a readable difference.

`NDD_UPDATE_GOLDEN=1 pytest tests/codegen/test_golden.py` renews the files.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import ndd
from ndd.fusion.plan import KernelStep, make_plan
from ndd.fusion.program import collect
from ndd.kernels import cpu, gpu

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
        steps = make_plan(collect([node]), fuse=True).steps
    assert len(steps) == 1 and isinstance(steps[0], KernelStep)
    return steps[0].spec


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("backend", [cpu, gpu], ids=["cpu", "gpu"])
def test_source_is_as_expected(name, backend):
    folder = GOLDEN / ("cpu" if backend is cpu else "gpu")
    source = backend.render(spec_of(PROGRAMS[name]), name)
    compile(source, name, "exec")
    path = folder / f"{name}.py"
    if os.environ.get("NDD_UPDATE_GOLDEN"):
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    assert source == path.read_text()
