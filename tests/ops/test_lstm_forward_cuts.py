"""The ways to run the forward recurrence on a GPU: every cut covers the problem and fits the device."""

import itertools

import pytest
import torch

pytest.importorskip("triton")

from aclgrad.core.memory import Scratch
from aclgrad.core.spec import F32
from aclgrad.gpu import launch
from aclgrad.ops.lstm.dims import LstmDims
from aclgrad.ops.lstm.triton.choose import Choice, cheapest, forward_candidates
from aclgrad.ops.lstm.triton.limits import Limits
from aclgrad.ops.lstm.triton.problem import Problem
from aclgrad.ops.lstm.triton.recurrence.persistent.forward_cut import PersistentForward, persistent_forward
from aclgrad.ops.lstm.triton.recurrence.warp_specialised import cut as warp_specialised
from aclgrad.ops.lstm.triton.recurrence.warp_specialised.cut import WarpSpecialisedForward, warp_specialised_forward

H200 = Limits(programs=132, all_shared=227 * 1024, warpgroups=True)
SMALL = Limits(programs=20, all_shared=97 * 1024, warpgroups=False)
SIZES = [(1, 1), (8, 128), (16, 768), (17, 65), (64, 512), (64, 1024), (100, 1500), (256, 1024), (33, 2048), (4096, 64)]


def dims(batch, hidden, directions=1):
    return LstmDims(8, batch, hidden, hidden, 1, directions, 2, False, False)


def best(kind, problem, split, limits):
    """The best cut of a kind, with its microseconds, if there is one."""
    candidates = forward_candidates(problem, split, limits)
    return next((candidate for candidate in candidates if isinstance(candidate.way, kind)), None)


@pytest.mark.parametrize(("batch", "hidden"), SIZES)
def test_a_persistent_grid_covers_the_problem_and_is_resident_at_once(batch, hidden):
    for limits, split, directions in itertools.product([H200, SMALL], [1, 2], [1, 2]):
        problem = dims(batch, hidden, directions)
        for cut in persistent_forward(problem, split, limits):
            programs, groups, ways = cut.grid(problem)
            assert programs * groups * ways <= limits.programs and ways == directions
            assert programs * cut.units >= hidden
            assert groups * cut.rows * cut.row_blocks >= batch
            assert cut.block_k & (cut.block_k - 1) == 0
            gates = 4 * cut.units * split
            if cut.stages:
                assert limits.warpgroups and hidden % 64 == 0 and gates % 64 == 0 and cut.stages >= 4
                shared = gates * hidden * 2 + cut.stages * cut.rows * 128 + gates * cut.rows * 4
                assert shared <= limits.all_shared
                continue
            k_warps = cut.warps // cut.unit_warps
            block = k_warps * cut.block_k * 4 * cut.units * 2
            assert cut.units % (16 * cut.unit_warps) == 0 and k_warps * cut.block_k * cut.k_blocks >= hidden
            if cut.kept >= 0:
                assert cut.kept <= cut.k_blocks and cut.low_kept <= (split == 2) * cut.k_blocks
                registers = (cut.kept + cut.low_kept) * block
                assert registers <= cut.warps * 32 * 255 * 4
                assert split * cut.k_blocks * block - registers + k_warps * cut.units * cut.rows * 16 <= limits.shared


@pytest.mark.parametrize(
    ("batch", "hidden", "split"), [(64, 512, 1), (64, 512, 2), (64, 1024, 1), (64, 1024, 2), (16, 768, 2)]
)
def test_weights_stay_on_chip_where_they_fit(batch, hidden, split):
    found = best(PersistentForward, dims(batch, hidden), split, H200)
    assert found is not None and (found.way.kept >= 0 or found.way.stages)
    choice = cheapest(forward_candidates(dims(batch, hidden), split, H200))
    assert isinstance(choice.way, PersistentForward) and choice.runner_up.microseconds > found.microseconds


def test_many_rows_are_multiplied_by_warpgroups():
    found = best(PersistentForward, dims(256, 1024), 1, H200)
    assert found is not None and found.way.stages


def test_no_persistent_grid_without_matrix_units_or_for_a_batch_that_fills_the_device():
    assert best(PersistentForward, dims(8, 128), 1, None) is None
    assert best(PersistentForward, dims(2**16, 1024), 1, H200) is None


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize(("batch", "hidden"), [*SIZES, (600, 256), (130, 896), (500, 512), (200, 640)])
def test_pairs_cover_the_problem_and_are_resident_at_once(batch, hidden, directions):
    problem = dims(batch, hidden, directions)
    pairs = list(warp_specialised_forward(problem, 2, H200))
    wanted = hidden % 128 == 0 and hidden // 8 * directions * -(-batch // 256) <= H200.programs
    assert len(pairs) == wanted
    for cut in pairs:
        programs, groups, ways = cut.grid(problem)
        assert programs * groups * ways <= H200.programs and ways == directions
        assert programs // 2 * warp_specialised.PAIR_UNITS == hidden and groups * warp_specialised.PAIR_ROWS >= batch
        assert hidden // 2 // warp_specialised.TILE_K % cut.tiles_per_sum == 0


def test_pairs_are_for_split_operands_and_warpgroups_with_enough_shared_memory():
    assert best(WarpSpecialisedForward, dims(256, 1024), 1, H200) is None
    assert best(WarpSpecialisedForward, dims(256, 1024), 2, SMALL) is None
    assert best(WarpSpecialisedForward, dims(256, 1024), 2, None) is None
    assert best(WarpSpecialisedForward, dims(256, 1024), 2, Limits(132, 207 * 1024, warpgroups=True)) is None


@pytest.mark.parametrize(
    ("batch", "hidden", "directions", "large"),
    [(256, 1024, 1, True), (512, 512, 1, True), (160, 512, 2, True), (64, 1024, 1, False), (256, 512, 1, False)],
)
def test_a_large_batch_is_for_pairs_and_a_small_one_for_a_persistent_grid(batch, hidden, directions, large):
    problem = dims(batch, hidden, directions)
    pairs, grid = (best(kind, problem, 2, H200) for kind in (WarpSpecialisedForward, PersistentForward))
    assert (pairs.microseconds < grid.microseconds) == large


@pytest.mark.skipif(not launch.KNOWN, reason="the kernel is in Gluon, of versions of Triton that are known")
def test_the_cut_of_pairs_knows_the_kernel():
    from aclgrad.ops.lstm.triton.recurrence.warp_specialised import forward_kernel as kernel
    from aclgrad.ops.lstm.triton.recurrence.warp_specialised.tile_ring import RING_TILES

    row_sets, tile_rows, tile_k = kernel.ROW_SETS.value, kernel.TILE_ROWS.value, kernel.TILE_K.value
    assert kernel.UNITS.value == warp_specialised.PAIR_UNITS and 4 * kernel.UNITS.value == kernel.GATES.value
    assert 2 * tile_rows * row_sets == warp_specialised.PAIR_ROWS and tile_k == warp_specialised.TILE_K
    assert row_sets * RING_TILES.value * tile_rows * tile_k * 2 == warp_specialised.RING_BYTES
    assert kernel.GATES.value * 2 * 2 // 2 == warp_specialised.PAIR_WEIGHTS  # two parts of two bytes, half of the depth


@pytest.mark.skipif(not launch.KNOWN, reason="the kernel is in Gluon, of versions of Triton that are known")
def test_pairs_are_compiled_anew_for_pointers_that_are_not_aligned(monkeypatch):
    from aclgrad.ops.lstm.triton.recurrence.warp_specialised.forward import WarpSpecialisedForwardRecurrence

    compiled, launched = [], []

    def compile_nothing(_function, arguments, grid, _device, **_settings):
        compiled.append(arguments)
        return {grid: lambda *given: launched.append((arguments, given))}

    monkeypatch.setattr("aclgrad.gpu.launch.compiled", compile_nothing)
    monkeypatch.setattr("aclgrad.gpu.operands.INTERPRETING", False)
    size, scratch = dims(256, 1024), Scratch()
    names = ("x_amax", "w_ih_amax", "bias", "h0_product", "h_init", "c_init", "saved")
    strides = {"gates": (1, 1), "h_init": (1, 1, 1), "c_init": (1, 1, 1), "output": (1, 1, 1, 1)}
    strides |= {"hy": (1, 1, 1), "cy": (1, 1, 1), "saved": (1, 1, 1)}
    problem = Problem(size, F32, torch.device("cuda", 0), True, frozenset(names), strides)
    h_buffer = scratch.tensor((2, 1, 2, size.N, size.H), torch.float16)
    (cut,) = warp_specialised_forward(size, 2, H200)
    pairs = WarpSpecialisedForwardRecurrence(problem, Choice(cut, 1.0), cut, scratch, h_buffer)
    workspace = torch.empty(scratch.size, dtype=torch.uint8)
    operands = [operand.name for operand in problem.given()]
    aligned = {name: 4096 * (1 + k) for k, name in enumerate(operands)}
    late = {name: address + 4 * (name in ("h_init", "h0_product")) for name, address in aligned.items()}
    for given in (aligned, late, late, aligned):
        pairs(workspace, given)
    assert len(compiled) == 2
    odd = [k for k, argument in enumerate(compiled[1]) if isinstance(argument, launch.Misaligned)]
    assert [operands[k - 2] for k in odd] == ["h0_product", "h_init"]  # behind the matrix and the buffer of h
    assert not any(isinstance(argument, launch.Misaligned) for argument in compiled[0])
    assert [arguments is compiled[1] for arguments, _ in launched] == [False, True, True, False]
    wanted = [None if name in ("batch_sizes", "starts") else late[name] for name in operands]
    assert list(launched[1][1][2 : 2 + len(wanted)]) == wanted


def test_a_single_step_is_a_launch():
    single = LstmDims(1, 64, 512, 512, 1, 1, 2, False, False)
    assert cheapest(forward_candidates(single, 1, H200)).runner_up is None
