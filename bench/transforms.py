"""Single transforms of decoded photos beside the fastest libraries for each, on one thread.

The transforms are those of the public RGB benchmark of AlbumentationsX. A batch is 16 photos of
about 375×500 bytes in RGB. Every library gets the photos in its own form (arrays, tensors with the
channels first, Pillow images, float tensors for kornia), converted before the clock starts, and
gives back the same form. Where definitions differ, the row has a note. What is random is drawn anew
by every call.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import ndd

from .harness import ROUNDS, Row, compare, optional, show, versions
from .resample import Runs, libraries
from .transform_list import TRANSFORMS, Transform

COUNT = 16
SAMPLE_SECONDS = 0.06  # there are 57 transforms with six contestants each
WORKLOAD = "transform "  # what the names of these workloads begin with


def photos() -> list[np.ndarray]:
    """Smooth photos with edges and some noise, all of different sizes."""
    rng = np.random.default_rng(3)
    made = []
    for k in range(COUNT):
        h, w = 360 + 2 * k, 515 - 2 * k
        y, x = np.mgrid[:h, :w] / 40.0
        waves = np.stack([np.sin(x * a + y * b) for a, b in ((1, 0.3), (0.2, 1), (0.7, -0.6))], -1)
        edges = np.where(np.sin(x / 2 + k) > 0.3, 40, -20)[..., None]
        made.append(
            np.uint8(np.clip(128 + 70 * waves + edges + rng.normal(0, 9, waves.shape), 0, 255))
        )
    return made


class Peers:
    """The libraries that are installed, and the photos in the form that each of them takes."""

    def __init__(self, images: Sequence[np.ndarray]) -> None:
        self.images: dict[str, list[Any]] = {}
        self.modules: dict[str, Any] = {}
        # Both packages are imported under the same name.
        is_older = versions()["albumentationsx"] == "missing"
        self.shown = {"albumentationsx": "albumentations"} if is_older else {}
        torch, vision = optional("torch"), optional("torchvision.transforms.v2")
        albumentations, cv2 = optional("albumentations"), optional("cv2")
        pillow, kornia = optional("PIL.Image"), optional("kornia.augmentation")
        if torch is not None:
            torch.set_num_threads(1)
        if cv2 is not None:
            cv2.setNumThreads(1)
            self._add("opencv", cv2, images)
        if albumentations is not None:
            self._add("albumentationsx", albumentations, images)
        if pillow is not None:
            self._add("pillow", pillow, [pillow.fromarray(i) for i in images])
        if torch is not None:
            planes = [torch.from_numpy(i).permute(2, 0, 1).contiguous() for i in images]
            if vision is not None:
                self._add("torchvision", vision, planes)
            if kornia is not None:
                self._add("kornia", kornia, [p[None].float().div(255) for p in planes])

    def _add(self, name: str, module: Any, images: Sequence[Any]) -> None:
        self.modules[name], self.images[name] = module, list(images)

    def runs(self, transform: Transform) -> Runs:
        """What to time for each library that has the transform."""
        found: Runs = {}
        for name, module in self.modules.items():
            make = transform.peers.get(name)
            if make is not None:
                shown, images = self.shown.get(name, name), self.images[name]
                _keep_if_it_runs(found, transform, shown, lambda m=module, f=make: f(m), images)
        return found


def _keep_if_it_runs(
    found: Runs, transform: Transform, name: str, make: Callable[[], Any], images: list[Any]
) -> None:
    try:
        apply = make()
        for image in images:
            apply(image)
    except Exception as error:  # a version of the library without it
        print(f"{transform.name}: {name} is left out: {_text(error)}")
        return
    found[name] = lambda: [apply(image) for image in images]


def _text(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:70]}"


def ours(transform: Transform, images: Sequence[np.ndarray]) -> Runs:
    """The same program here and on the oracle, if the oracle has what it needs."""
    found: Runs = {}
    for name, (lib, context) in libraries().items():
        batch = lib.batch(list(images), layout="HWC")

        def once(lib: Any = lib, context: Any = context, batch: Any = batch) -> object:
            with context:
                return transform.program(lib, batch).evaluate()

        try:
            once()
        except Exception as error:
            if name == "ndd":
                raise
            print(f"{transform.name}: the oracle is left out: {_text(error)}")
            continue
        found[name] = once
    return found


def measured(chosen: Sequence[Transform], rounds: int) -> list[Row]:
    images = photos()
    peers = Peers(images)
    rows: list[Row] = []
    for transform in chosen:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runs = ours(transform, images) | peers.runs(transform)
            name = f"{WORKLOAD}{transform.name}"
            found = compare(name, runs, rounds, divide=COUNT, seconds=SAMPLE_SECONDS, cpu_time=True)
        show(found, "ndd")
        rows += found
    return rows


def main(rounds: int = ROUNDS, only: Sequence[str] = ()) -> list[Row]:
    chosen = [t for t in TRANSFORMS if not only or t.name in only]
    rows = measured(chosen, rounds)
    print(f"\n{summary(rows)}")
    return rows


def summary(rows: Sequence[Row]) -> str:
    """In how many rows we are first, and the geometric mean of our lead."""
    leads = []
    for workload in dict.fromkeys(r.workload for r in rows):
        own = {r.name: r.value for r in rows if r.workload == workload}
        others = [v for n, v in own.items() if n != "ndd"]
        if others:
            leads.append(min(others) / own["ndd"])
    mean = float(np.exp(np.mean(np.log(leads)))) if leads else 0.0
    first = sum(lead >= 1 for lead in leads)
    return f"first in {first} of {len(leads)} transforms, geometric mean {mean:.2f}"


assert ndd  # the library is imported before the peers, whose threads would otherwise come first
