"""Nodes for torchdata: a reader, a function for one of its outputs, and the hand-over to torch.

>>> import ndd, pathlib, tempfile, numpy as np
>>> folder = pathlib.Path(tempfile.mkdtemp())
>>> for i in range(4): np.save(folder / f"{i}.npy", np.full(3, i, np.float32))
>>> nodes = ndd.pytorch.nodes
>>> node = nodes.Reader(ndd.readers.Numpy, batch_size=2, output_names=["data"], file_root=folder)
>>> node = nodes.ToTorch(nodes.DictMapper(node, lambda data: data * 2))
>>> [data.tolist() for (data,) in node]
[[[0.0, 0.0, 0.0], [2.0, 2.0, 2.0]], [[4.0, 4.0, 4.0], [6.0, 6.0, 6.0]]]
"""

from __future__ import annotations

from ..integrations.torchdata_nodes import DictMapper, ToTorch
from ..integrations.torchdata_nodes import ReaderNode as Reader

__all__ = ["DictMapper", "Reader", "ToTorch"]
