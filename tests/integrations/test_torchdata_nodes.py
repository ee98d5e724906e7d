"""The nodes of `ndd.pytorch.nodes` do what upstream's do, and resume in mid-epoch."""

from __future__ import annotations

import sys

import cv2
import numpy as np
import nvidia.dali.experimental.dynamic as dali
import nvidia.dali.experimental.dynamic.pytorch.nodes as their_nodes
import pytest
import torch
import torchdata.nodes as tn

import ndd
from ndd.integrations.extras import need
from tests.core.test_public_surface import compare_signatures

nodes = ndd.pytorch.nodes
LIBRARIES = {"ndd": (ndd, nodes), "dali": (dali, their_nodes)}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    for i in range(5):
        (folder / "ab"[i % 2]).mkdir(exist_ok=True)
        picture = np.full((4, 6, 3), 10 * i, np.uint8)
        cv2.imwrite(str(folder / "ab"[i % 2] / f"{i}.png"), picture)
    return str(folder)


def program(library, nodes, root, **options):
    """Decoded and mirrored pictures and labels, as torch tensors."""
    node = nodes.Reader(library.readers.File, batch_size=2, file_root=root, **options)
    node = nodes.DictMapper(node, lambda data: library.flip(library.decoders.image(data)))
    return nodes.ToTorch(nodes.DictMapper(node, lambda label: label + 1, key="label"))


def items(node) -> list[list]:
    return [[value.tolist() for value in item] for item in node]


def test_epochs_equal_the_oracles(root):
    found = {}
    for name, (library, module) in LIBRARIES.items():
        loader = tn.Loader(program(library, module, root))
        found[name] = [items(loader) for _ in range(2)]
    assert found["ndd"] == found["dali"]
    assert [len(epoch) for epoch in found["ndd"]] == [3, 3]


def test_names_metadata_and_mistakes(root):
    for _name, (library, module) in LIBRARIES.items():
        one = module.Reader(library.readers.File, batch_size=None, file_root=root)
        assert {k: v.shape for k, v in next(one).items()}["label"] == (1,)
        assert one.get_metadata()["epoch_size"] == 5
        named = module.Reader(library.readers.File, batch_size=2, output_names="xy", file_root=root)
        assert list(next(named)) == ["x", "y"]
        with pytest.raises(ValueError, match="output"):
            next(
                module.Reader(library.readers.File, batch_size=2, output_names="x", file_root=root)
            )
        with pytest.raises(KeyError, match="nope"):
            next(module.DictMapper(named, lambda x: x, key="nope"))
    with pytest.raises(TypeError, match=r"nodes\.Reader: `reader_type` must be a class"):
        nodes.Reader(ndd.readers.File(file_root=root), batch_size=2)
    ragged = nodes.ToTorch(nodes.Reader(ndd.readers.File, batch_size=4, file_root=root))
    with pytest.raises(ValueError, match=r"ToTorch: entry 'data'.*pad=True"):
        next(ragged)


@pytest.mark.parametrize("taken", range(4))
def test_a_loader_resumes(root, taken):
    options = dict(random_shuffle=True, seed=3, last_batch="partial")
    whole = tn.Loader(program(ndd, nodes, root, **options))
    wanted = [items(whole), items(whole)]
    assert wanted[0] != wanted[1]
    first = tn.Loader(program(ndd, nodes, root, **options))
    running = iter(first)
    for _ in range(taken):
        next(running)
    resumed = tn.Loader(program(ndd, nodes, root, **options))
    resumed.load_state_dict(first.state_dict())
    # After the last batch, torchdata goes on with the next epoch.
    rest = wanted[0][taken:] or wanted[1]
    assert items(resumed) == rest


def test_in_a_thread_beside_other_nodes(root):
    node = tn.Prefetcher(tn.Batcher(program(ndd, nodes, root, last_batch="partial"), 2), 2)
    assert [len(pair) for pair in node] == [2]
    assert all(isinstance(pair[0][0], torch.Tensor) for pair in tn.Loader(node))


@pytest.mark.parametrize("name", ["Reader", "DictMapper", "ToTorch"])
def test_signatures_equal_the_oracles(name):
    ours, theirs = getattr(nodes, name), getattr(their_nodes, name)
    for member in ("__init__", "next", "reset", "get_state"):
        compare_signatures(getattr(ours, member), getattr(theirs, member), f"{name}.{member}")


def test_a_missing_package_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchdata", None)
    monkeypatch.setitem(sys.modules, "torchdata.nodes", None)
    with pytest.raises(
        ImportError, match=r'needs torchdata.*pip install "ndd-fusion\[torchdata\]"'
    ):
        need("torchdata.nodes", "ndd.pytorch.nodes", "torchdata")
    with pytest.raises(AttributeError, match=r"no attribute 'node'"):
        ndd.pytorch.node
