"""Fused programs touch little more memory than their inputs and outputs, counted when they run; the
documentation says how much."""

from __future__ import annotations

import pytest

from tests.emulator.report import PROGRAMS, images, report_on, together
from tests.gpu.report import PAGE

pytestmark = pytest.mark.gpu

MOST = 1.3  # of the least number of bytes


@pytest.mark.parametrize("name", PROGRAMS)
def test_bytes_touched(name, emulator):
    least, report = report_on(PROGRAMS[name], images())
    touched = together(report.kernels).touched_bytes
    assert 0 < touched <= MOST * least
    (row,) = [s for s in PAGE.read_text().splitlines() if s.startswith(f"| {name} | all kernels |")]
    assert f"({touched / least:.2f} ×)" in row, "run: python -m tests.emulator.report"
