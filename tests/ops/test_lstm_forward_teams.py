"""The teams of programs that run the forward recurrence on a GPU: every one covers the problem and fits the device."""

import pytest

pytest.importorskip("triton")

from aclgrad.ops.lstm.dims import LstmDims
from aclgrad.ops.lstm.triton_forward_teams import best_team, steps_cost, teams
from aclgrad.ops.lstm.triton_teams import RESERVED, Limits

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
