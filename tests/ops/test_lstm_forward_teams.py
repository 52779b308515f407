"""The teams of programs that run the forward recurrence on a GPU: every one covers the problem and fits the device."""

import pytest
import torch

pytest.importorskip("triton")

from aclgrad.core.memory import Scratch
from aclgrad.core.spec import F32
from aclgrad.gpu import launch
from aclgrad.ops.lstm.dims import LstmDims
from aclgrad.ops.lstm.triton.choose import RESERVED, Limits
from aclgrad.ops.lstm.triton.recurrence.per_step import forward as recurrence
from aclgrad.ops.lstm.triton.recurrence.persistent import cut as forward
from aclgrad.ops.lstm.triton.recurrence.persistent.cut import best_pairs, best_team, steps_cost, teams

H200 = Limits(programs=132, shared=220 * 1024, warpgroups=True)
SMALL = Limits(programs=20, shared=90 * 1024, warpgroups=False)
SIZES = [(1, 1), (8, 128), (16, 768), (17, 65), (64, 512), (64, 1024), (100, 1500), (256, 1024), (33, 2048), (4096, 64)]


def dims(batch, hidden, directions=1):
    return LstmDims(8, batch, hidden, hidden, 1, directions, 2, False, False)


@pytest.mark.parametrize("limits", [H200, SMALL], ids=["large", "small"])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize(("batch", "hidden"), SIZES)
def test_a_team_covers_the_problem_and_is_resident_at_once(batch, hidden, directions, parts, limits):
    problem = dims(batch, hidden, directions)
    for team in teams(problem, parts, limits):
        members, groups, ways = team.grid(problem)
        assert members * groups * ways <= limits.programs and ways == directions
        assert members * team.units >= hidden
        assert groups * team.rows * team.chunks >= batch
        assert team.deep & (team.deep - 1) == 0
        gates = 4 * team.units * parts
        if team.stages:
            assert limits.warpgroups and hidden % 64 == 0 and gates % 64 == 0 and team.stages >= 4
            shared = gates * hidden * 2 + team.stages * team.rows * 128 + gates * team.rows * 4
            assert shared <= limits.shared + RESERVED
            continue
        depths = team.warps // team.across
        piece = depths * team.deep * 4 * team.units * 2
        assert team.units % (16 * team.across) == 0 and depths * team.deep * team.subs >= hidden
        if team.kept >= 0:
            assert team.kept <= team.subs and team.low_kept <= (parts == 2) * team.subs
            registers = (team.kept + team.low_kept) * piece
            assert registers <= team.warps * 32 * 255 * 4
            assert parts * team.subs * piece - registers + depths * team.units * team.rows * 16 <= limits.shared


@pytest.mark.parametrize(
    ("batch", "hidden", "parts"), [(64, 512, 1), (64, 512, 2), (64, 1024, 1), (64, 1024, 2), (16, 768, 2)]
)
def test_weights_stay_on_chip_where_they_fit(batch, hidden, parts):
    team = best_team(dims(batch, hidden), parts, H200)
    assert team is not None and (team.kept >= 0 or team.stages)
    assert team.cost < steps_cost(dims(batch, hidden), parts)


def test_many_rows_are_multiplied_by_warpgroups():
    team = best_team(dims(256, 1024), 1, H200)
    assert team is not None and team.stages


def test_no_team_without_matrix_units_or_for_a_batch_that_fills_the_device():
    assert best_team(dims(8, 128), 1, None) is None
    assert best_team(dims(2**16, 1024), 1, H200) is None


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize(("batch", "hidden"), [*SIZES, (600, 256), (130, 896), (500, 512), (200, 640)])
def test_pairs_cover_the_problem_and_are_resident_at_once(batch, hidden, directions):
    problem = dims(batch, hidden, directions)
    pairs = best_pairs(problem, 2, H200)
    wanted = hidden % 128 == 0 and hidden // 8 * directions * -(-batch // 256) <= H200.programs
    assert (pairs is not None) == wanted
    if pairs is not None:
        members, groups, ways = pairs.grid(problem)
        assert members * groups * ways <= H200.programs and ways == directions
        assert members // 2 * forward.PAIR_UNITS == hidden and groups * forward.PAIR_ROWS >= batch
        assert hidden // 2 // forward.SLICE % pairs.piece == 0


def test_pairs_are_for_operands_in_two_parts_and_warpgroups_with_room():
    assert best_pairs(dims(256, 1024), 1, H200) is None
    assert best_pairs(dims(256, 1024), 2, SMALL) is None
    assert best_pairs(dims(256, 1024), 2, None) is None
    assert best_pairs(dims(256, 1024), 2, Limits(132, 200 * 1024, warpgroups=True)) is None


@pytest.mark.parametrize(
    ("batch", "hidden", "directions", "large"),
    [(256, 1024, 1, True), (512, 512, 1, True), (160, 512, 2, True), (64, 1024, 1, False), (256, 512, 1, False)],
)
def test_a_large_batch_is_for_pairs_and_a_small_one_for_a_team(batch, hidden, directions, large):
    problem = dims(batch, hidden, directions)
    assert (best_pairs(problem, 2, H200).cost < best_team(problem, 2, H200).cost) == large


@pytest.mark.skipif(not launch.KNOWN, reason="the kernel is in Gluon, of versions of Triton that are known")
def test_the_model_of_pairs_knows_the_kernel():
    from aclgrad.ops.lstm.triton.recurrence.warp_specialised import forward_kernel as kernel
    from aclgrad.ops.lstm.triton.recurrence.warp_specialised.tile_ring import RING

    streams, rows, deep = kernel.STREAMS.value, kernel.ROWS.value, kernel.DEEP.value
    assert kernel.UNITS.value == forward.PAIR_UNITS and 4 * kernel.UNITS.value == kernel.GATES.value
    assert 2 * rows * streams == forward.PAIR_ROWS and deep == forward.SLICE
    assert streams * RING.value * rows * deep * 2 == forward.RINGS
    assert kernel.GATES.value * 2 * 2 // 2 == forward.PAIR_WEIGHTS  # two halves of two bytes, half of the depth


@pytest.mark.skipif(not launch.KNOWN, reason="the kernel is in Gluon, of versions of Triton that are known")
def test_pairs_are_compiled_anew_for_pointers_that_are_not_aligned(monkeypatch):
    compiled, launched = [], []

    def compile_nothing(_function, arguments, grid, _device, **_settings):
        compiled.append(arguments)
        return {grid: lambda *given: launched.append((arguments, given))}

    monkeypatch.setattr("aclgrad.gpu.hopper.compiled", compile_nothing)
    size, scratch = dims(256, 1024), Scratch()
    strides = ((1, 1), *((1, 1, 1),) * 2, (1, 1, 1, 1), *((1, 1, 1),) * 3)
    problem = recurrence.ForwardProblem(size, F32, torch.device("cuda", 0), True, True, True, True, strides)
    exchange = scratch.tensor((2, 1, 2, size.N, size.H), torch.float16)
    pairs = recurrence.Pairs(problem, best_pairs(size, 2, H200), scratch)
    workspace = torch.empty(scratch.size, dtype=torch.uint8)
    operands = [4096 * k for k in range(1, len(problem.dtypes(precise=True)))]
    late = [address + 4 * (k in (7, 8)) for k, address in enumerate(operands)]
    for given in (operands, late, late, operands):
        pairs(workspace, exchange, given)
    assert len(compiled) == 2
    odd = [isinstance(argument, launch.Misaligned) for argument in compiled[1]]
    assert [k for k, is_odd in enumerate(odd) if is_odd] == [2 + 7, 2 + 8]  # behind the states and h
    assert not any(isinstance(argument, launch.Misaligned) for argument in compiled[0])
    assert [arguments is compiled[1] for arguments, _ in launched] == [False, True, True, False]
    assert list(launched[1][1][2 : 2 + len(late)]) == late
