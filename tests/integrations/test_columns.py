"""Columns of tables become Batches over the same memory, and results become columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from ray.data.block import BlockAccessor

import ndd
import ndd.integrations.ray as ndd_ray
from ndd.integrations.table_columns import batches_of, from_arrow, from_numpy, to_numpy
from tests.integrations.ray_programs import double, fails_on_seven

COUNT = 6
# Ray warns of its own settings when its data context is made.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context")


def objects(values) -> np.ndarray:
    column = np.empty(len(values), object)
    column[:] = values
    return column


def columns() -> dict[str, np.ndarray]:
    return {
        "id": np.arange(COUNT),
        "data": objects([bytes([i] * (i + 1)) for i in range(COUNT)]),
        "image": np.arange(COUNT * 6, dtype=np.uint8).reshape(COUNT, 2, 3),
        "ragged": objects([np.full((i % 3 + 1, 2), i, np.float32) for i in range(COUNT)]),
        "flag": np.arange(COUNT) % 2 == 0,
        "name": objects(list("abcdef")),
    }


def table() -> pa.Table:
    lists = pa.array([[1.0, 2.0], [], [3.0]] * 2, pa.list_(pa.float32()))
    return BlockAccessor.batch_to_arrow_block(columns()).append_column("list", lists)


def lists_of(found) -> dict[str, list]:
    return {
        n: [np.asarray(t).tolist() for t in c.tensors] if isinstance(c, ndd.Batch) else list(c)
        for n, c in found.items()
    }


WANTED = {n: [list(v) if isinstance(v, bytes) else getattr(v, "tolist", lambda v=v: v)() for v in c]
          for n, c in columns().items()}  # fmt: skip


def test_columns_of_numpy_and_arrow():
    assert lists_of(batches_of(columns())) == WANTED
    found = batches_of(table())
    assert lists_of(found) == WANTED | {"list": [[1.0, 2.0], [], [3.0]] * 2}
    assert {n for n, c in found.items() if not isinstance(c, ndd.Batch)} == {"name"}
    assert found["data"].dtype is ndd.uint8 and found["flag"].dtype is ndd.bool


def test_parts_of_tables():
    whole = table()
    parts = pa.concat_tables([whole.slice(4, 2), whole.slice(1, 2)])
    wanted = {n: [*c[4:6], *c[1:3]] for n, c in lists_of(batches_of(whole)).items()}
    assert lists_of(batches_of(parts)) == wanted
    assert lists_of(batches_of(whole.slice(3, 0)))["data"] == []


def test_nothing_is_copied():
    arrow = table()
    found = batches_of(arrow)
    for name in ("data", "list", "id"):
        buffers = [b for b in arrow.column(name).chunk(0).buffers() if b is not None]
        spans = [(b.address, b.address + b.size) for b in buffers]
        for address in found[name]._node.storage.addresses:
            assert any(begin <= address < end + 1 for begin, end in spans), name
    plain = columns()
    for name in ("id", "image", "ragged"):
        first = plain[name][0] if plain[name].dtype == object else plain[name]
        assert from_numpy(plain[name])._node.storage.addresses[0] == first.ctypes.data
    uniform = (from_numpy(plain["image"]) + 1).evaluate()
    back = to_numpy(uniform)
    assert back.shape == (COUNT, 2, 3) and back.ctypes.data == uniform._node.storage.addresses[0]
    with ndd.EvalMode.deferred:  # memory that cannot change does not force a computation
        assert (from_arrow(arrow.column("image")) * 2)._node.storage is None


@pytest.mark.parametrize("make", [columns, table])
def test_a_worker_outside_of_ray(make):
    source = make()
    result = ndd_ray.Augment(double)()(source)
    assert isinstance(result, type(source))
    if isinstance(source, dict):
        assert result["data"] is source["data"]  # passed on
    else:
        assert result.column("data").equals(source.column("data"))
    found = lists_of(batches_of(result))
    assert found["sizes"] == [1, 2, 3, 4, 5, 6]
    assert found["image"] == (columns()["image"].astype(int) * 2 + 1).tolist()
    assert {n: found[n] for n in ("id", "data", "ragged", "name")} == {
        n: WANTED[n] for n in ("id", "data", "ragged", "name")
    }


@pytest.mark.parametrize("make", [dict, pa.table])
def test_samples_that_fail(make):
    ids = make({"id": np.arange(5, 9)})
    with pytest.raises(ValueError, match="seven is not possible"):
        ndd_ray.Augment(fails_on_seven)()(ids)
    skipping = ndd_ray.Augment(fails_on_seven, on_error="skip")()
    found = batches_of(skipping(ids))
    assert lists_of(found) == {"id": [5, 6, 8], "x": [7.5, 9.0, 12.0]}
    filling = ndd_ray.Augment(fails_on_seven, on_error="fill", error_column="ledger")()
    found = lists_of(batches_of(filling(ids)))
    assert found["id"] == [5, 6, 7, 8] and found["x"] == [7.5, 9.0, 0.0, 12.0]
    assert found["ledger"] == ["", "", "ValueError: seven is not possible", ""]
    alone = lists_of(batches_of(filling(make({"id": np.array([7])}))))
    assert alone == {"id": [7], "x": [0.0], "ledger": ["ValueError: seven is not possible"]}


def test_samples_that_a_decoder_has_filled():
    def decode(columns):
        return {
            "image": ndd.resize(ndd.decoders.image(columns["data"], on_error="fill"), size=[2, 2])
        }

    rows = {"data": objects([b"P3 2 1 255 1 2 3 4 5 6 ", b"no image"])}
    found = ndd_ray.Augment(decode, on_error="fill")()(rows)
    assert found["image"].shape == (2, 2, 2, 3)
    assert found["error"][0] == "" and "could not decode" in found["error"][1]


def test_numbers_by_key_do_not_depend_on_the_worker():
    def draw(columns):
        return {"x": ndd.random.uniform(batch_size=columns["id"].batch_size), "id": columns["id"]}

    rows = {"id": np.arange(4)}, {"id": np.arange(4, 8)}
    by_key = [ndd_ray.Augment(draw, seed=1, key="id")() for _ in range(2)]
    first = [by_key[0](r)["x"].tolist() for r in rows]
    assert [by_key[1](r)["x"].tolist() for r in reversed(rows)] == first[::-1]
    assert first[0] != first[1]
    other = ndd_ray.Augment(draw, seed=2, key="id")()
    assert other(rows[0])["x"].tolist() != first[0]
    with pytest.raises(KeyError, match="no column 'path' for `key`; there are id"):
        ndd_ray.Augment(draw, key="path")()(rows[0])


def test_mistakes():
    with pytest.raises(TypeError, match="`function` must be callable, got int"):
        ndd_ray.Augment(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='`on_error` must be "raise", "skip" or "fill"'):
        ndd_ray.Augment(double, on_error="ignore")  # type: ignore[arg-type]
