"""Ray Data and Ray Train on a real local cluster of several nodes, some of which die."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
import ray
from ray.cluster_utils import Cluster

import ndd.integrations.ray as ndd_ray
from ndd.random import RNG
from ndd.runtime.lineage import derived_seed
from tests.helpers import ROOT
from tests.integrations import ray_programs as programs

pytestmark = [
    pytest.mark.slow(seconds=40),
    # Ray's own: of its settings, of `concurrency`, and files that its clients leave open.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
STORE = 80 << 20  # Ray's smallest store of objects is 75 MB


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A head with one CPU and two nodes with two: one of two workers is outside of the head, and they
    find room even if a node is lost."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))  # workers import the programs of the tests
        patch.setenv("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
        node = dict(num_cpus=2, object_store_memory=STORE)
        head = dict(num_cpus=1, object_store_memory=STORE, include_dashboard=False)
        made = Cluster(initialize_head=True, head_node_args=head)
        made.others = {n.node_id: n for n in (made.add_node(**node), made.add_node(**node))}
        ray.init(address=made.address, log_to_driver=False, logging_level="error")
        yield made
        ray.shutdown()
        made.shutdown()


def numbers(count: int, blocks: int) -> ray.data.Dataset:
    return ray.data.range(count, override_num_blocks=blocks)


def drawn(folder: Path, **options) -> dict[str, list]:
    folder.mkdir()
    function = ndd_ray.Augment(programs.Draw(str(folder)), **options)
    rows = numbers(48, 12).map_batches(
        function, batch_size=4, concurrency=2, batch_format="pyarrow"
    )  # fmt: skip
    found = rows.to_pandas()
    return {name: found[name].tolist() for name in found.columns}


def test_workers_draw_different_numbers_and_use_their_share(cluster, tmp_path):
    first = drawn(tmp_path / "0", seed=3)
    assert sorted(first["id"]) == list(range(48))
    assert len(set(first["drawn"])) == 48  # nobody repeats anybody
    # Ray decides who gets which rows, but the streams are those of the numbers 0 and 1, in any run.
    for number in range(2):
        rng = RNG(seed=derived_seed(3, number))
        stream = [rng() for _ in range(48)]
        used = [n in first["drawn"] for n in stream]
        assert used[0] and used == sorted(used, reverse=True)  # from its begin, without gaps
        first["drawn"] = [n for n in first["drawn"] if n not in stream]
    assert not first["drawn"]
    nodes, workers, threads, caches = zip(*(w.split() for w in set(first["where"])), strict=True)
    assert len(set(workers)) == 2 and set(threads) == {"1"}
    by_node = {(node, cache) for node, cache in zip(nodes, caches, strict=True)}
    assert len(by_node) == len(set(nodes))  # one kernel cache per node
    by_key = [drawn(tmp_path / f"by key {k}", seed=3, key="id") for k in range(2)]
    rows = [dict(zip(d["id"], d["drawn"], strict=True)) for d in by_key]
    assert rows[0] == rows[1]  # whatever Ray decides


def test_columns_of_all_sorts(cluster):
    items = [
        {"id": i, "data": bytes([i] * (i + 1)), "image": np.full((2, 3), i, np.uint8),
         "ragged": np.full((i % 3 + 1, 2), i, np.float32), "name": f"n{i}"}
        for i in range(8)
    ]  # fmt: skip
    rows = ray.data.from_items(items, override_num_blocks=2).map_batches(
        ndd_ray.Augment(programs.double), batch_size=4, concurrency=1, batch_format="pyarrow"
    )
    found = rows.take_all()
    assert sorted(row["id"] for row in found) == list(range(8))
    for row in found:
        i = row["id"]
        assert row["image"].tolist() == [[2 * i + 1] * 3] * 2
        assert (row["data"], row["sizes"], row["name"]) == (items[i]["data"], i + 1, f"n{i}")
        assert row["ragged"].tolist() == items[i]["ragged"].tolist()


def test_a_bad_sample_reaches_the_ledger(cluster):
    rows = numbers(16, 4).map_batches(
        ndd_ray.Augment(programs.fails_on_seven, on_error="fill"), batch_size=4, concurrency=1
    )
    found = {row["id"]: row["error"] for row in rows.take_all()}
    assert found == {i: "ValueError: seven is not possible" if i == 7 else "" for i in range(16)}


def test_a_worker_that_is_killed(cluster, tmp_path):
    marker = tmp_path / "killed"
    rows = numbers(64, 16).map_batches(
        ndd_ray.Augment(programs.Deadly(str(marker), at=33)), batch_size=4, concurrency=2
    )
    found = {row["id"]: row["twice"] for row in rows.take_all()}
    assert marker.exists()
    assert found == {i: 2 * i for i in range(64)}


def train_loop(config: dict) -> None:
    """Reads an epoch in two runs: the first stops early, the second continues with other workers."""
    import json
    import tempfile

    from ray import train

    import ndd

    reader = ndd_ray.shard(ndd.readers.File, file_root=config["root"], last_batch="partial", seed=5,
                           random_shuffle=True)  # fmt: skip
    rank = train.get_context().get_world_rank()
    seen: list[int] = []
    for step, (_, labels) in enumerate(reader.next_epoch(batch_size=2)):
        seen += labels.torch().flatten().tolist()
        if step + 1 == config["steps"]:
            break
    Path(config["out"], f"{config['run']}-{rank}.json").write_text(json.dumps(seen))
    with tempfile.TemporaryDirectory() as folder:
        ndd_ray.save_shard(reader, folder)
        train.report(
            {"threads": ndd.get_num_threads()}, checkpoint=train.Checkpoint.from_directory(folder)
        )


def test_ray_train_resumes_with_another_number_of_workers(cluster, tmp_path):
    import json

    from ray.train import RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    for i in range(12):
        (tmp_path / "data" / f"{i:02d}").mkdir(parents=True)
        (tmp_path / "data" / f"{i:02d}" / "x.jpg").write_bytes(b"x")

    def run(number: int, workers: int, steps: int) -> None:
        config = dict(root=str(tmp_path / "data"), out=str(tmp_path), run=number, steps=steps)
        DataParallelTrainer(
            train_loop, train_loop_config=config,
            scaling_config=ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 1}),
            run_config=RunConfig(name="same", storage_path=str(tmp_path / "runs")),
        ).fit()  # fmt: skip

    run(0, workers=2, steps=1)
    run(1, workers=1, steps=100)  # a run of the same name continues from its checkpoint
    seen = [n for path in tmp_path.glob("*.json") for n in json.loads(path.read_text())]
    assert sorted(seen) == list(range(12))


def test_a_node_that_dies(cluster, tmp_path):
    """The last test of this cluster, which has one node less afterwards."""
    rows = numbers(96, 24).map_batches(
        ndd_ray.Augment(programs.Present(str(tmp_path))), batch_size=4, concurrency=2
    )
    killed: list[str] = []

    def kill() -> None:
        """End a node that is at work."""
        while not killed:
            time.sleep(0.05)
            for path in tmp_path.glob("*-3"):  # it has done three batches
                node = path.name.removesuffix("-3")
                if node in cluster.others and not killed:
                    killed.append(node)
                    cluster.remove_node(cluster.others[node], allow_graceful=False)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    found = [(row["id"], row["twice"]) for row in rows.take_all()]
    killer.join(10)
    assert killed and sum(node["Alive"] for node in ray.nodes()) == 2
    assert sorted(found) == [(i, 2 * i) for i in range(96)]
