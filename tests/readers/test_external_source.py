"""ExternalSource and io.file.read, compared with the oracle where it has an answer."""

from __future__ import annotations

import numpy as np
import nvidia.dali.experimental.dynamic as dali
import pytest

import ndd
from tests.helpers import arrays, assert_same
from tests.readers.helpers import info, numbered


def pulled(library, make, calls, batch_size=None, **options):
    """Values of so many calls; "stop" where the source is at its end."""
    source = library.ExternalSource(make(library), **options)
    found = []
    for _ in range(calls):
        try:
            values = source(batch_size=batch_size)
        except StopIteration:
            found.append("stop")
            continue
        values = values if isinstance(values, tuple) else (values,)
        found.append([(type(v).__name__, v.layout, samples(v)) for v in values])
    return found


def samples(value):
    tensors = list(value.tensors) if type(value).__name__ == "Batch" else [value]
    return [np.array(t) for t in tensors]


def assert_equal(got, wanted):
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted):
        assert (a == "stop") == (b == "stop")
        if a != "stop":
            assert [v[:2] for v in a] == [v[:2] for v in b]
            for x, y in zip(a, b):
                assert_same(x[2], y[2])


def generator(library):
    return (np.full(2, i, np.int16) for i in range(3))


def function(library):
    remaining = [np.float32(1), np.float32(2)]

    def pull():
        if not remaining:
            raise StopIteration
        return remaining.pop(0)

    return pull


SOURCES = [
    (lambda _: [1, 2, 3], {}),
    (lambda _: [[1, 2], [3, 4]], {}),
    (lambda _: [(1, 2)], {}),
    (generator, {}),
    (function, {}),
    (lambda _: np.arange(6).reshape(3, 2), {}),
    (lambda _: [1.5, 2], dict(cycle="quiet")),
    (lambda _: [1.5, 2], dict(cycle=True)),
    (lambda _: [1.5, 2], dict(cycle="raise")),
    (lambda _: [1.5, 2], dict(cycle="no")),
    (lambda _: [1.5, 2], dict(cycle=False)),
    (lambda _: [(1, 2.5), [3, 4.5]], dict(num_outputs=2)),
    (lambda _: [(np.zeros((2, 3, 1)), np.ones(2))], dict(num_outputs=2, layout=["HWC", "X"])),
    (lambda _: [np.zeros((2, 3, 1))], dict(layout="HWC")),
]


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("case", range(len(SOURCES)))
def test_items_equal_the_oracles(case, batch_size):
    make, options = SOURCES[case]
    got = pulled(ndd, make, 6, batch_size, **options)
    assert_equal(got, pulled(dali, make, 6, batch_size, **options))


@pytest.mark.parametrize("batch_size", [None, 2])
def test_batches_stay_batches(batch_size):
    def make(library):
        return [library.batch([[1], [2, 3]])]

    got = pulled(ndd, make, 2, batch_size)
    assert_equal(got, pulled(dali, make, 2, batch_size))
    # the samples of a batch are documented to be one, too, but the oracle fails
    assert_equal(pulled(ndd, lambda lib: [make(lib)[0].tensors], 2, batch_size), got)


def test_types_are_converted():
    source = ndd.ExternalSource(lambda: ([1, 2], np.int64(3)), 2, dtype=[ndd.float32, "uint8"])
    a, b = source()
    assert (a.dtype, b.dtype) == (ndd.float32, ndd.uint8)
    assert ndd.ExternalSource([1], dtype=ndd.int16)().dtype == ndd.int16
    batch = ndd.ExternalSource([ndd.batch([[1], [2, 3]])], dtype=ndd.float32, layout="X")()
    assert batch.dtype == ndd.float32 and batch.layout == "X"
    assert_same(arrays(batch), [np.array([1], np.float32), np.array([2, 3], np.float32)])


def test_a_generator_function_can_be_cycled():
    def numbers():
        yield from (1, 2)

    source = ndd.ExternalSource(numbers, cycle="quiet")
    assert [source().item() for _ in range(5)] == [1, 2, 1, 2, 1]
    once = ndd.ExternalSource(numbers)
    assert [once().item() for _ in range(2)] == [1, 2]
    for _ in range(2):
        with pytest.raises(StopIteration):
            once()


def test_an_empty_source_ends_even_if_cycled():
    source = ndd.ExternalSource([], cycle="quiet")
    with pytest.raises(StopIteration):
        source()


def test_captured_yields_all_items():
    assert [b.batch_size for b in ndd.ExternalSource([1, 2, 3]).captured(4)] == [4, 4, 4]


def test_results_are_used_in_ops(mode):
    source = ndd.ExternalSource(np.arange(3, dtype=np.float32) for _ in range(2))
    assert_same(source(batch_size=2) * 2 + 1, [np.array([1, 3, 5], np.float32)] * 2)


def test_on_the_gpu(device):
    value = ndd.ExternalSource([np.arange(3)], device=device)(batch_size=2)
    assert value.device.device_type == device
    assert_same(value, [np.arange(3)] * 2)


WRONG = [
    (lambda: ndd.ExternalSource(3), TypeError, "the source must be a function without arguments or an iterable, got int"),
    (lambda: ndd.ExternalSource(lambda i: i), ValueError, "the function must not need arguments"),
    (lambda: ndd.ExternalSource([1], 0), ValueError, "`num_outputs` must be a positive integer, got 0"),
    (lambda: ndd.ExternalSource([1], None), ValueError, "`num_outputs` must be a positive integer, got None"),
    (lambda: ndd.ExternalSource([1], cycle="yes"), ValueError, '`cycle` must be "no" .* got \'yes\''),
    (lambda: ndd.ExternalSource(lambda: 1, cycle="quiet"), ValueError, "`cycle` is for iterables and generator functions"),
    (lambda: ndd.ExternalSource((i for i in [1]), cycle=True), TypeError, "a generator cannot be started again; .* the generator function itself"),
    (lambda: ndd.ExternalSource([1], 2, layout=["HWC"]), ValueError, "`layout` has 1 entries for 2 outputs"),
    (lambda: ndd.ExternalSource([(1, 2, 3)], 2)(), ValueError, "the source must give 2 outputs, got 3"),
    (lambda: ndd.ExternalSource([5], 2)(), ValueError, "the source must give 2 outputs in a tuple, got int"),
    (lambda: ndd.ExternalSource(["text"])(), TypeError, "ExternalSource: output 0: cannot make a tensor from str"),
    (lambda: ndd.ExternalSource([[1]], layout="HWC")(), ValueError, "output 0: layout 'HWC' has 3 axes, but the data has 1"),
    (lambda: ndd.ExternalSource([ndd.batch([1, 2])])(batch_size=3), ValueError, "a batch of 3 was wanted, the source gave one of 2"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(WRONG)))
def test_mistakes_are_explained(case):
    call, kind, text = WRONG[case]
    with pytest.raises(kind, match=text):
        call()


# -- io.file.read --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return numbered(tmp_path_factory.mktemp("files"), 3)


def as_bytes(path: str) -> np.ndarray:
    return np.frombuffer(path.encode(), np.uint8)


def test_files_are_read_as_by_the_oracle(files):
    one, two = as_bytes(files[1]), as_bytes(files[2])
    padded = np.concatenate([two, np.zeros(3, np.uint8)])
    for argument, options in (
        (lambda lib: one, {}),
        (lambda lib: one.view(np.int8), {}),
        (lambda lib: padded, {}),
        (lambda lib: one, dict(batch_size=3)),
        (lambda lib: lib.batch([one, padded]), dict(dont_use_mmap=True)),
    ):
        got, wanted = (
            ndd.io.file.read(argument(ndd), **options),
            dali.io.file.read(argument(dali), **options),
        )
        assert type(got).__name__ == type(wanted).__name__
        assert_same(samples(got), samples(wanted))


def test_paths_can_be_text(files, mode):
    assert ndd.io.file.read(files[1]).item() == 1
    both = ndd.io.file.read([files[2], files[1]])
    assert [t.item() for t in both.tensors] == [2, 1] and info(ndd, both) == [files[2], files[1]]
    assert (ndd.io.file.read(files[2]) + 1).item() == 3


def test_read_says_what_is_wrong(files, tmp_path):
    for call, kind, text in (
        (lambda: ndd.io.file.read(tmp_path / "none"), FileNotFoundError, r"io.file.read: cannot read '.*none': No such file or directory \(called at .*test_external_source.py:"),
        (lambda: ndd.io.file.read([files[0], str(tmp_path)]), IsADirectoryError, r"cannot read '.*' \(sample 1\): Is a directory"),
        (lambda: ndd.io.file.read(np.zeros((2, 2), np.uint8)), TypeError, r"a path is text or a 1-D tensor of its bytes \(uint8 or int8\), got 2-D data of uint8"),
        (lambda: ndd.io.file.read(np.zeros(2, np.float32)), TypeError, "got 1-D data of float32"),
        (lambda: ndd.io.file.read(files[0], device="gpu"), ValueError, "files are read on the CPU, got device='gpu'"),
        (lambda: ndd.io.file.read(files, batch_size=2), ValueError, "batch_size is 2, but there are 3 paths"),
    ):  # fmt: skip
        with pytest.raises(kind, match=text):
            call()
