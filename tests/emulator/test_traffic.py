"""Fused programs touch little more memory than their inputs and outputs, counted when they run."""

from __future__ import annotations

import pytest

from tests.emulator.report import PROGRAMS, images, report_on, together

pytestmark = pytest.mark.gpu

MOST = 1.3  # of the least number of bytes


@pytest.mark.parametrize("name", PROGRAMS)
def test_bytes_touched(name, emulator):
    least, report = report_on(PROGRAMS[name], images())
    assert 0 < together(report.kernels).touched_bytes <= MOST * least
