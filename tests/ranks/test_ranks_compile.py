"""Compiled modules over two ranks: one graph each, the same results, the collectives in it."""

import compile_checks
import pytest

from aclgrad.testing.processes import Processes

GATHER, SUM, SCATTER = "all_gather_into_tensor", "all_reduce", "reduce_scatter_tensor"
EXPECTED = {
    compile_checks.split_head: [[[GATHER], [SUM]], [[GATHER] * 2, [SCATTER]]],
    compile_checks.norm: [[[GATHER], [GATHER]]] * 2,
    compile_checks.tensors: [[[GATHER], [SUM]]],
}
"""Of every module its collectives, forward and backward; a compiler keeps the input that was gathered."""


@pytest.fixture(scope="module")
def two_ranks():
    with Processes(2) as processes:
        yield processes


@pytest.mark.parametrize("check", EXPECTED, ids=lambda check: check.__name__)
def test_one_graph_with_its_collectives(check, two_ranks):
    assert two_ranks(check, None) == [EXPECTED[check]] * 2


def test_batches_of_any_size(two_ranks):
    two_ranks(compile_checks.norm_of_any_batch)


def test_a_plain_weight_in_a_graph(two_ranks):
    for message in two_ranks(compile_checks.plain_weight):
        assert "a graph cannot ask other ranks for their rows; use nn.VocabParallelLinear" in message


@pytest.mark.slow
@pytest.mark.parametrize("check", EXPECTED, ids=lambda check: check.__name__)
def test_by_inductor(check, two_ranks):
    two_ranks(check, "inductor")
