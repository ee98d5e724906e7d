"""box_encoder against the oracle, on both devices, and its errors."""

from __future__ import annotations

import numpy as np
import pytest

import ndd

from ..helpers import arrays
from .modes import error_everywhere, same_everywhere
from .oracle import check
from .test_boxes import boxes

# Some boxes and some anchors are alike, one sample has no boxes.
BOXES = [boxes(20, 1), boxes(1, 2), boxes(0, 3), np.repeat(boxes(1, 4), 3, axis=0)]
LABELS = [np.arange(1, len(b) + 1, dtype=np.int32) for b in BOXES]
ANCHORS = np.concatenate([boxes(60, 5), np.repeat(boxes(3, 6), 2, axis=0)]).reshape(-1).tolist()
OFFSETS = dict(offset=True, means=[0.1, 0.2, 0.3, 0.4], stds=[0.1, 0.1, 0.2, 0.2], scale=300.0)


@pytest.mark.parametrize("criteria", [0.0, 0.3, 0.5, 1.0])
def test_encoder(criteria):
    check("box_encoder", BOXES, LABELS, anchors=ANCHORS, criteria=criteria, rtol=0)


@pytest.mark.parametrize("arguments", [{"offset": True}, OFFSETS])
def test_offsets(arguments):
    """Differences of centres nearly cancel, so they are compared with the size of boxes."""
    from .oracle import ndd_call, oracle_call
    from .test_transforms import compare_to_scale

    inputs = BOXES, LABELS
    got = ndd_call("box_encoder", *inputs, anchors=ANCHORS, criteria=0.2, **arguments)
    want = oracle_call("box_encoder", *inputs, anchors=ANCHORS, criteria=0.2, **arguments)
    compare_to_scale("box_encoder", got[0], want[0])
    assert [a.tolist() for a in got[1].arrays] == [a.tolist() for a in want[1].arrays]


def test_ties_and_forced_matches():
    near, far = [0.1, 0.1, 0.4, 0.4], [0.6, 0.6, 0.9, 0.9]
    quarter, other = [0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]
    for x, anchors in (
        ([near, [0.1, 0.1, 0.45, 0.45]], [quarter]),  # two boxes want the same anchor
        ([[0.1, 0.1, 0.45, 0.45], near], [quarter]),
        ([near], [other, other]),  # the box meets no anchor
        ([near, far], [quarter, quarter, other, other]),
        ([quarter, [0.5, 0.5, 0.75, 1]], [other, other, quarter]),  # the IoU equals the criterion
        ([[0.4, 0.4, 0.1, 0.1]], [quarter, other]),  # upside down
    ):
        labels = np.arange(3, 3 + len(x), dtype=np.int32)
        for criteria in (0.1, 0.5, 0.9):
            check("box_encoder", np.float32(x), labels, anchors=np.float32(anchors).reshape(-1).tolist(),
                  criteria=criteria, rtol=0)  # fmt: skip
    check("box_encoder", BOXES[0], LABELS[0][:, None], anchors=ANCHORS, rtol=0)


def test_modes_and_devices(monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")

    def program(device=None):
        x, labels = ndd.batch(BOXES, device=device), ndd.batch(LABELS, device=device)
        y = ndd.bb_flip(x, ltrb=True)
        return ndd.box_encoder(y, labels, anchors=ANCHORS, criteria=0.3, **OFFSETS)

    same_everywhere(program)
    for mine, theirs in zip(program(), program("gpu"), strict=True):
        assert theirs.device.device_type == "gpu"
        for a, b in zip(arrays(mine), arrays(theirs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_errors():
    x, labels, anchors = BOXES[0], LABELS[0], ANCHORS
    encode = ndd.box_encoder

    def refused(text, program, kind=ValueError):
        error_everywhere(kind, f"box_encoder: {text}", program)

    refused("boxes must be float32, got f64", lambda: encode(x.astype(float), labels, anchors=anchors),
            TypeError)  # fmt: skip
    refused("boxes must have the shape (n, 4), got (4,)",
            lambda: encode(x[0], labels[:1], anchors=anchors))  # fmt: skip
    refused("labels must be int32, got i64",
            lambda: encode(x, labels.astype(np.int64), anchors=anchors), TypeError)  # fmt: skip
    refused("there are 3 labels and 20 boxes in sample 0",
            lambda: encode(x, labels[:3], anchors=anchors))  # fmt: skip
    refused("argument `anchors` is required", lambda: encode(x, labels), TypeError)
    for bad in ([], [1.0, 2.0, 3.0]):
        refused(f"`anchors` must have 4 numbers for each anchor, got {len(bad)}",
                lambda bad=bad: encode(x, labels, anchors=bad))  # fmt: skip
    refused("`criteria` must lie in [0, 1], got 2",
            lambda: encode(x, labels, anchors=anchors, criteria=2.0))  # fmt: skip
    refused("`stds` must have 4 values, got 3",
            lambda: encode(x, labels, anchors=anchors, stds=[1, 1, 1]))  # fmt: skip
    refused("`stds` must not be 0, got [0.0, 1.0, 1.0, 1.0]",
            lambda: encode(x, labels, anchors=anchors, stds=[0, 1, 1, 1]))  # fmt: skip
