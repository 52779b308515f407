"""The ways to run the gradient's recurrence on a GPU: every cut covers the problem and fits the device."""

import itertools

import pytest

pytest.importorskip("triton")

from aclgrad.core.spec import F16, F32
from aclgrad.gpu import launch
from aclgrad.ops.lstm.dims import LstmDims
from aclgrad.ops.lstm.triton.choose import backward_candidates, cheapest
from aclgrad.ops.lstm.triton.limits import Limits
from aclgrad.ops.lstm.triton.recurrence.persistent.backward_cut import (
    WARPS,
    PersistentBackward,
    WeightsIn,
    persistent_backward,
)
from aclgrad.ops.lstm.triton.recurrence.row_owner import cut as row_owners
from aclgrad.ops.lstm.triton.recurrence.row_owner.cut import BLOCK_ROWS, UNITS, RowOwner, row_owner
from aclgrad.ops.lstm.triton.recurrence.warp_specialised import cut as warp_specialised
from aclgrad.ops.lstm.triton.recurrence.warp_specialised.cut import WarpSpecialisedBackward, warp_specialised_backward

H200 = Limits(programs=132, all_shared=227 * 1024, warpgroups=True)
SMALL = Limits(programs=20, all_shared=97 * 1024, warpgroups=False)
SIZES = [(1, 1), (8, 128), (16, 768), (17, 65), (64, 512), (64, 1024), (100, 1500), (256, 1024), (33, 2048), (4096, 64)]


def dims(batch, hidden, directions):
    return LstmDims(8, batch, hidden, hidden, 1, directions, 2, False, False)


def best(kind, problem, dtype, limits):
    """The best cut of a kind, if there is one."""
    ways = [candidate.way for candidate in backward_candidates(problem, dtype, limits)]
    return next((way for way in ways if isinstance(way, kind)), None)


@pytest.mark.parametrize(("batch", "hidden"), SIZES)
def test_a_persistent_grid_covers_the_problem_and_is_resident_at_once(batch, hidden):
    for limits, itemsize, directions in itertools.product([H200, SMALL], [2, 4], [1, 2]):
        problem = dims(batch, hidden, directions)
        for cut in persistent_backward(problem, itemsize, limits):
            programs, groups, ways = cut.grid(problem)
            assert programs * groups * ways <= limits.programs and ways == directions
            assert programs // cut.split_k * cut.units >= hidden
            assert groups * cut.rows * cut.row_blocks >= batch
            depth = cut.split_k * cut.warps * cut.block_k * cut.k_blocks
            assert depth >= 4 * hidden
            assert cut.units % cut.split_k == 0 and cut.block_k & (cut.block_k - 1) == 0
            weights = cut.warps * cut.block_k * cut.k_blocks * cut.units * itemsize
            if cut.weights_in is WeightsIn.SHARED_FOR_WARPGROUPS:
                assert depth == 4 * hidden and cut.block_k * cut.k_blocks * cut.warps % 64 == 0
                assert limits.warpgroups and itemsize == 2 and cut.rows % 16 == 0
                assert weights + cut.stages * cut.rows * 128 + cut.units * cut.rows * 4 <= limits.shared
            elif cut.weights_in is WeightsIn.SHARED:
                assert weights + cut.warps * cut.units * cut.rows * 4 <= limits.shared
            elif cut.weights_in is WeightsIn.REGISTERS:
                assert weights <= WARPS * 32 * 255 * 4


def test_weights_stay_on_chip_where_they_fit():
    for batch, hidden, dtype in [(64, 512, F16), (64, 1024, F16), (16, 768, F32)]:
        cut = best(PersistentBackward, dims(batch, hidden, 1), dtype, H200)
        assert cut is not None and cut.weights_in is not WeightsIn.MEMORY


def test_no_persistent_grid_without_matrix_units_or_for_a_batch_that_fills_the_device():
    assert best(PersistentBackward, dims(8, 128, 1), F16, None) is None
    assert best(PersistentBackward, dims(2**16, 1024, 1), F16, H200) is None


@pytest.mark.parametrize(("batch", "hidden"), [*SIZES, (256, 512), (130, 1024), (5, 64), (70, 960)])
def test_row_owners_cover_the_problem_and_are_resident_at_once(batch, hidden):
    problem = dims(batch, hidden, 1)
    for cut in row_owner(problem, H200) if hidden % UNITS == 0 else ():
        programs, groups, _ = cut.grid(problem)
        assert programs * groups <= H200.programs
        assert programs // cut.split_k * UNITS == hidden
        assert groups * cut.rows >= batch and programs * cut.rows_owned >= cut.rows
        depth = 4 * hidden // cut.split_k
        assert depth * cut.split_k == 4 * hidden and depth % cut.block_k == 0
        assert cut.rows % (16 * row_owners.WARPS // 8) == 0 and cut.rows & (cut.rows - 1) == 0
        weights, passing = 2 * UNITS * depth * 2, cut.stages * min(cut.rows, BLOCK_ROWS) * cut.block_k * 2 * 2
        assert cut.stages >= 2 and weights + passing <= H200.shared


@pytest.mark.parametrize("batch", [1, 64, 65, 129, 130, 150, 256, 300, 513, 1000, 1024, 5000])
def test_warp_specialised_row_owners_cover_the_problem_and_leave_no_consumer_idle(batch):
    for hidden in (64, 256, 320, 512, 576, 768, 896, 960, 1024, 1088):
        problem = dims(batch, hidden, 1)
        for cut in warp_specialised_backward(problem, H200):
            programs, groups, _ = cut.grid(problem)
            assert programs * groups <= H200.programs and programs // cut.split_k * UNITS == hidden
            assert programs * cut.rows_owned >= cut.rows
            counts = [min(batch - row_set * cut.rows, cut.rows) for row_set in range(2 * groups)]
            assert sum(counts) == batch and min(counts) > 64  # two tiles of 64, one for either consumer
            tiles = 4 * hidden // cut.split_k // 64
            assert tiles * cut.split_k * 64 == 4 * hidden and tiles % cut.tiles_per_sum == 0
            assert 2 * UNITS * tiles * 64 * 2 + warp_specialised.RING_BYTES <= H200.all_shared


@pytest.mark.parametrize(
    ("batch", "kind"),
    [(64, RowOwner), (128, RowOwner), (150, WarpSpecialisedBackward), (256, WarpSpecialisedBackward)],
)
def test_warps_are_specialised_for_large_batches(batch, kind):
    assert isinstance(cheapest(backward_candidates(dims(batch, 1024, 1), F32, H200)).way, kind)


@pytest.mark.skipif(not launch.KNOWN, reason="the kernel is in Gluon, of versions of Triton that are known")
def test_the_cut_of_warp_specialised_row_owners_knows_the_kernel():
    from aclgrad.ops.lstm.triton.recurrence.row_owner import rows
    from aclgrad.ops.lstm.triton.recurrence.warp_specialised import backward_kernel as kernel
    from aclgrad.ops.lstm.triton.recurrence.warp_specialised.tile_ring import RING_TILES

    tile_rows, tile_k, consumers = kernel.TILE_ROWS.value, kernel.TILE_K.value, kernel.CONSUMERS.value
    assert kernel.ROW_SETS.value == warp_specialised.ROW_SETS and consumers == warp_specialised.CONSUMERS
    assert tile_rows == warp_specialised.TILE_ROWS and tile_k == warp_specialised.TILE_K
    assert kernel.UNITS.value == rows.UNITS.value == UNITS
    assert consumers * RING_TILES.value * tile_rows * tile_k * 2 == warp_specialised.RING_BYTES


@pytest.mark.skipif(not launch.KNOWN, reason="the kernel is in Gluon, of versions of Triton that are known")
def test_the_places_of_weights_are_the_kernels():
    from aclgrad.ops.lstm.triton.recurrence.persistent import backward_products as kernel

    assert kernel.IN_REGISTERS.value == WeightsIn.REGISTERS.value and kernel.IN_SHARED.value == WeightsIn.SHARED.value
    assert kernel.IN_MEMORY.value == WeightsIn.MEMORY.value
    assert kernel.IN_SHARED_FOR_WARPGROUPS.value == WeightsIn.SHARED_FOR_WARPGROUPS.value


@pytest.mark.parametrize("kind", [RowOwner, WarpSpecialisedBackward])
def test_row_owners_are_for_float32_warpgroups_and_one_direction(kind):
    assert best(kind, dims(256, 1024, 1), F32, H200) is not None
    assert best(kind, dims(256, 1024, 1), F16, H200) is None
    assert best(kind, dims(256, 1024, 1), F32, SMALL) is None
    assert best(kind, dims(256, 1000, 1), F32, H200) is None
    assert best(kind, dims(256, 1024, 1), F32, None) is None
    assert best(kind, dims(256, 512, 2), F32, H200) is None
    ways = backward_candidates(dims(256, 1024, 1), F32, H200, split_delta=False)
    assert not any(isinstance(candidate.way, kind) for candidate in ways)
