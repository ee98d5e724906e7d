"""Which nodes become one kernel, and why a group ends. Nothing is compiled or run here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.fusion.plan import keep
from ndd.fusion.plan.planner import PLANNER
from ndd.fusion.plan.program import collect
from ndd.kernels.cpu import runtime as cpu_runtime
from tests.helpers import SHAPES, kernels, ragged

Images = ndd.Batch


@pytest.fixture(autouse=True)
def look_only() -> Iterator[None]:
    before = cpu_runtime.compile_count
    with ndd.EvalMode.deferred:
        yield
    assert cpu_runtime.compile_count == before


def images(dtype: Any = np.uint8) -> Images:
    return ragged(dtype=dtype)


def gains() -> ndd.Batch:
    return ndd.batch([np.float32(g) for g in (0.5, 1.0, 2.0)])


def group_ops(x: Any) -> list[tuple[str, ...]]:
    return [g.ops for g in ndd.explain(x).groups]


# -- one kernel ----------------------------------------------------------------------------------


def mixed_types(x: Images) -> Images:
    x = ndd.cast(x, dtype=ndd.float32) * 1.5
    x = ndd.cast(x, dtype=ndd.uint8) + ndd.cast(x, dtype=ndd.int16)
    return ndd.cast(ndd.cast(x, dtype=ndd.float16) / 3, dtype=ndd.int32)


def per_sample(x: Images) -> Images:
    x = ndd.brightness_contrast(x, brightness=gains(), contrast=0.5)
    return ndd.color_twist(x * gains(), hue=gains(), saturation=1.2)


def broadcasting(x: Images) -> Images:
    per_channel = ndd.tensor([0.1, 0.2, 0.3])
    return (x - per_channel) / ndd.tensor(np.ones((1, 1, 3), np.float32)) + 1


def views(x: Images) -> Images:
    x = ndd.flip(x, horizontal=ndd.batch([1, 0, 1]), vertical=1)
    x = ndd.crop(x, crop=(3, 3), crop_pos_x=ndd.batch([0.0, 0.5, 1.0]))
    x = ndd.slice(x, start=(0, 1), end=(3, 3), axes=(0, 1))
    x = ndd.pad(x, fill_value=7.0, axes=(0,), shape=(6,))
    x = ndd.transpose(x, perm=[2, 0, 1])
    return x.slice[::-1, 1:, ::2]


def everything(x: Images) -> Images:
    x = mixed_types(views(per_sample(x)))
    return ndd.pad(ndd.math.sqrt(ndd.math.abs(broadcast_last(x))), axes=(1,), align=(8,)) * 2.0


def broadcast_last(x: Images) -> Images:
    return x + ndd.tensor(np.ones((3, 1, 1), np.float32))


CHAINS = [mixed_types, per_sample, broadcasting, views, everything]


@pytest.mark.parametrize("chain", CHAINS, ids=lambda f: f.__name__)
def test_chain_is_one_kernel(chain: Callable[[Images], Images]) -> None:
    found = ndd.explain(chain(images()))
    assert [g.kind for g in found.groups] == ["kernel"], str(found)
    assert found.fused_bytes < found.unfused_bytes


@pytest.mark.parametrize("chain", CHAINS, ids=lambda f: f.__name__)
def test_without_fusion_every_op_is_a_group(
    chain: Callable[[Images], Images], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NDD_FUSION", "0")
    found = ndd.explain(chain(images()))
    assert len(found.groups) == len(found.nodes)
    assert all(len(g.ops) == 1 for g in found.groups)


@pytest.mark.parametrize("length", [1, 2, 17, keep.MAX_GROUP_NODES])
def test_long_chain_is_one_kernel(length: int) -> None:
    x = ragged(dtype=np.float32)
    for k in range(length):
        x = x * 0.5 if k % 2 else x + 1.0
    assert kernels(x) == 1


def test_chain_beyond_the_limit_ends_with_a_reason() -> None:
    x = ragged(dtype=np.float32)
    for _ in range(2 * keep.MAX_GROUP_NODES + 10):
        x = x * 0.5
    found = ndd.explain(x)
    assert [len(g.ops) for g in found.groups] == [128, 128, 10]
    assert [g.reason for g in found.groups] == [
        "the group has reached 128 operations",
        "the group has reached 128 operations",
        "its value is asked for",
    ]


def test_an_operand_that_is_used_twice_counts_once() -> None:
    x = ragged(dtype=np.float32)
    for _ in range(40):
        x = x * x  # 2^40 operations if they were counted along all paths
    assert kernels(x) == 1


@pytest.mark.parametrize("join", [ndd.cat, ndd.stack])
def test_joins_fuse_with_what_is_before_and_after(join: Callable[..., Images]) -> None:
    x = ragged(dtype=np.float32)
    y = join(ndd.flip(x) * 2.0, x + 1.0, ndd.brightness(x, brightness=0.5))
    assert group_ops(y * 3.0 + 1.0)[0].count("mul") == 2
    assert kernels(y * 3.0 + 1.0) == 1


def test_a_join_of_many_parts_is_made_in_rounds() -> None:
    x = ragged(dtype=np.float32)
    found = ndd.explain(ndd.cat(*[x + float(k) for k in range(20)]))
    assert len(found.kernels) == 4  # three rounds of up to eight parts, and the last one
    assert found.groups[0].reason == "it is one of many joined parts"


# -- common subexpressions and dead code ---------------------------------------------------------


def test_equal_calls_are_made_once() -> None:
    x = images()
    y = ndd.brightness(x, brightness=2.0) + ndd.brightness(x, brightness=2.0)
    assert group_ops(y) == [("brightness", "add")]
    z = ndd.transpose(x, perm=[1, 0, 2]) + ndd.transpose(x, perm=[1, 0, 2])
    assert group_ops(z) == [("transpose", "add")]


def test_calls_with_other_values_or_types_are_not_equal() -> None:
    x = images()
    assert group_ops(ndd.brightness(x, brightness=2.0) + ndd.brightness(x, brightness=3.0)) == [
        ("brightness", "brightness", "add")
    ]
    assert group_ops(ndd.cast(x, dtype=ndd.int32) + ndd.cast(x, dtype=ndd.int16)) == [
        ("cast", "cast", "add")
    ]
    assert group_ops((x + 0.0) * (x + -0.0)) == [("add", "add", "mul")]
    assert group_ops((x + 1) * (x + 1.0)) == [("add", "add", "mul")]


def test_equal_arguments_by_chance_keep_their_places() -> None:
    # x*a + y*b must have the same plan whether or not a equals b
    x, y = ragged(seed=1), ragged(seed=2)
    different = ndd.explain(x * 2.0 + y * 3.0)
    before = PLANNER.count
    alike = ndd.explain(x * 2.0 + y * 2.0)
    assert PLANNER.count == before
    assert alike.kernels == different.kernels


def test_a_value_that_nobody_can_ask_for_is_not_computed() -> None:
    x = images()
    y = ndd.brightness(x, brightness=2.0)
    unused = ndd.hue(y, hue=30.0)
    assert group_ops(y) == [("brightness",)]
    del unused


# -- a value used twice --------------------------------------------------------------------------


def test_a_value_used_twice_at_one_place_is_computed_once() -> None:
    dear = ndd.math.exp(ndd.math.sin(ragged(dtype=np.float32)))
    per_channel = ndd.tensor(np.ones((1, 1, 3), np.float32))
    y = dear * per_channel + dear  # the broadcast operand moves, the dear one does not
    assert group_ops(y) == [("sin", "exp", "mul", "add")]


def test_a_cheap_value_used_at_two_places_is_computed_twice() -> None:
    x = ragged(dtype=np.float32) + 1.0
    assert kernels(x + ndd.flip(x)) == 1


def test_a_dear_value_used_at_two_places_is_stored() -> None:
    x = ndd.math.exp(ndd.math.sin(ragged(dtype=np.float32)))
    found = ndd.explain(x + ndd.flip(x))
    assert [g.ops for g in found.groups] == [("sin", "exp"), ("flip", "add")]
    assert "dearer to compute again" in found.groups[0].reason


def test_several_results_of_one_pass_are_one_kernel() -> None:
    x = ragged(dtype=np.float32)
    a = x * 2.0
    b = ndd.flip(a)
    c = b + 1.0
    found = ndd.explain(a, b, c)
    assert len(found.kernels) == 1
    assert len(found.groups[0].outputs) == 3


def test_a_result_is_stored_before_all_of_its_readers() -> None:
    # a is read by r and by q; r moves into the kernel of z, which runs after q
    x = ragged(dtype=np.float32)
    a = ndd.math.exp(x)
    r = a * 3.0
    q = ndd.crop(a, crop=(2, 2)) + 5.0
    z = r - 1.0
    program = collect([v._node for v in (a, r, q, z)])
    made: set[int] = {p for p, n in enumerate(program.nodes) if n.storage is not None}
    for step in PLANNER.make_plan(program, True).steps:
        assert set(step.reads) <= made
        made |= set(step.writes)
    assert set(program.outputs) <= made


def test_a_partly_read_result_is_not_stored_by_its_reader() -> None:
    # z visits only some elements of a, so its kernel cannot be the one that stores a
    x = ragged([(4, 5, 3)], dtype=np.float32)
    a = x * 2.0
    z = a.slice[0:1] + a * 3.0
    found = ndd.explain(a, z)
    assert [g.ops for g in found.groups] == [("mul",), ("slice", "mul", "add")]


# -- where groups end ----------------------------------------------------------------------------


def test_memory_ops_end_groups_and_say_so() -> None:
    x = images() * 2.0
    found = ndd.explain(ndd.reshape(x, shape=[-1]) + 1.0)
    assert [g.kind for g in found.groups] == ["kernel", "opaque", "kernel"]
    assert found.groups[0].reason == "reshape needs it in memory"
    assert found.groups[1].reason == "reshape works on memory"


def test_a_tensor_for_a_whole_batch_is_computed_once() -> None:
    mean = ndd.math.sqrt(ndd.tensor([4.0, 9.0, 16.0]))
    found = ndd.explain(images() - mean)
    assert [g.ops for g in found.groups] == [("sqrt",), ("sub",)]
    assert found.groups[0].reason == "one tensor serves all samples"


def test_a_computed_table_is_stored() -> None:
    table = ndd.tensor(np.arange(256, dtype=np.float32)) * 2.0
    x = ragged()
    found = ndd.explain(x * 1.0, table)
    assert len(found.groups) == 2


def test_renamed_axes_cost_no_kernel() -> None:
    x = ndd.tensor(np.zeros((2, 1, 3), np.float32)) + 1.0
    found = ndd.explain(ndd.squeeze(x, axes=[1]))
    assert [g.kind for g in found.groups] == ["kernel", "opaque"]
    assert found.groups[0].reason == "squeeze only renames its axes"


# -- plans serve all sizes -----------------------------------------------------------------------


def test_other_sizes_and_values_have_the_same_plan() -> None:
    def program(shapes: Any, gain: float, crop: tuple[int, int]) -> Any:
        x = ndd.crop(ndd.flip(ragged(shapes)), crop=crop)
        return ndd.explain(ndd.brightness(x, brightness=gain) * 2.0)

    first = program(SHAPES, 0.5, (3, 3))
    before = PLANNER.count
    for shapes in ([(9, 9, 3)], [(3, 4, 3)] * 17, [(40, 60, 3), (3, 3, 3)]):
        assert program(shapes, 0.25 * len(shapes), (2, 3)).kernels == first.kernels
    assert PLANNER.count == before


def test_explain_refuses_other_things() -> None:
    with pytest.raises(TypeError, match="explain: wanted a Tensor or a Batch, got list"):
        ndd.explain([1, 2])


def test_explain_prints_all_it_knows() -> None:
    x = ndd.flip(images()) * 2.0
    text = str(ndd.explain(x))
    assert text.startswith("2 operations in 1 group\n")
    assert "flip → mul" in text and "ends because its value is asked for" in text
    assert "bytes moved: " in text and "saved)" in text and ".py" in text
