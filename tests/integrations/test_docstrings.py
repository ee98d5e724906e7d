"""The examples in the docstrings of integrations run."""

from __future__ import annotations

import doctest

import pytest

import ndd.integrations.ray
import ndd.pytorch.nodes


@pytest.mark.parametrize("module", [ndd.pytorch, ndd.pytorch.nodes, ndd.integrations.ray])
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context")
def test_examples_run(module):
    found = doctest.testmod(module)
    assert found.attempted and not found.failed
