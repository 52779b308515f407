"""The teams of programs that run the recurrence on a GPU: every one covers the problem and fits the device."""

import pytest

pytest.importorskip("triton")

from aclgrad.core.spec import F16, F32
from aclgrad.gpu import launch
from aclgrad.ops.lstm.spec import LstmDims
from aclgrad.ops.lstm.triton.choose import RESERVED, WARPS, WIDE_UNITS, Limits, Place, best_team, teams
from aclgrad.ops.lstm.triton.recurrence.row_owner import backward as triton_relays
from aclgrad.ops.lstm.triton.recurrence.row_owner.backward import BLOCK, Relay, Streams, best_relay, relays, streams

H200 = Limits(programs=132, shared=220 * 1024, warpgroups=True)
SMALL = Limits(programs=20, shared=90 * 1024, warpgroups=False)
SIZES = [(1, 1), (8, 128), (16, 768), (17, 65), (64, 512), (64, 1024), (100, 1500), (256, 1024), (33, 2048), (4096, 64)]


def dims(batch, hidden, directions):
    return LstmDims(8, batch, hidden, hidden, 1, directions, 2, False, False)


@pytest.mark.parametrize("limits", [H200, SMALL], ids=["large", "small"])
@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize(("batch", "hidden"), SIZES)
def test_a_team_covers_the_problem_and_is_resident_at_once(batch, hidden, directions, itemsize, limits):
    problem = dims(batch, hidden, directions)
    for team in teams(problem, itemsize, limits):
        members, groups, ways = team.grid(problem)
        assert members * groups * ways <= limits.programs and ways == directions
        assert members // team.parts * team.units >= hidden
        assert groups * team.rows * team.chunks >= batch
        depth = team.parts * team.warps * team.deep * team.subs
        assert depth >= 4 * hidden
        assert team.units % team.parts == 0 and team.deep & (team.deep - 1) == 0
        weights = team.warps * team.deep * team.subs * team.units * itemsize
        if team.place is Place.SHARED_WIDE:
            assert depth == 4 * hidden and team.deep * team.subs * team.warps % 64 == 0
            assert limits.warpgroups and itemsize == 2 and team.rows % 16 == 0
            assert weights + team.stages * team.rows * 128 + team.units * team.rows * 4 <= limits.shared
        elif team.place is Place.SHARED:
            assert weights + team.warps * team.units * team.rows * 4 <= limits.shared
        elif team.place is Place.REGISTERS:
            assert weights <= WARPS * 32 * 255 * 4


def test_weights_stay_on_chip_where_they_fit():
    for batch, hidden, dtype in [(64, 512, F16), (64, 1024, F16), (16, 768, F32)]:
        team = best_team(dims(batch, hidden, 1), dtype, H200)
        assert team is not None and team.place is not Place.MEMORY


def test_no_team_without_matrix_units_or_for_a_batch_that_fills_the_device():
    assert best_team(dims(8, 128, 1), F16, None) is None
    assert best_team(dims(2**16, 1024, 1), F16, H200) is None


@pytest.mark.parametrize(("batch", "hidden"), [*SIZES, (256, 512), (130, 1024), (5, 64), (70, 960)])
def test_a_relay_covers_the_problem_and_is_resident_at_once(batch, hidden):
    problem = dims(batch, hidden, 1)
    for relay in relays(problem, H200) if hidden % WIDE_UNITS == 0 else ():
        members, groups = relay.grid(problem)
        assert members * groups <= H200.programs
        assert members // relay.parts * WIDE_UNITS == hidden
        assert groups * relay.rows >= batch and members * relay.own >= relay.rows
        depth = 4 * hidden // relay.parts
        assert depth * relay.parts == 4 * hidden and depth % relay.chunk == 0
        assert relay.rows % (16 * WARPS // 8) == 0 and relay.rows & (relay.rows - 1) == 0
        weights, passing = 2 * WIDE_UNITS * depth * 2, relay.stages * min(relay.rows, BLOCK) * relay.chunk * 2 * 2
        assert relay.stages >= 2 and weights + passing <= H200.shared


@pytest.mark.parametrize("hidden", [64, 256, 320, 512, 576, 768, 896, 960, 1024, 1088])
@pytest.mark.parametrize("batch", [1, 64, 65, 129, 130, 150, 256, 300, 513, 1000, 1024, 5000])
def test_streams_cover_the_problem_and_leave_no_warp_group_idle(batch, hidden):
    problem = dims(batch, hidden, 1)
    for relay in streams(problem, H200):
        members, groups = relay.grid(problem)
        assert members * groups <= H200.programs and members // relay.parts * WIDE_UNITS == hidden
        assert members * relay.own >= relay.rows
        counts = [min(batch - stream * relay.rows, relay.rows) for stream in range(2 * groups)]
        assert sum(counts) == batch and min(counts) > 64  # two blocks of 64, one for either
        slices = 4 * hidden // relay.parts // 64
        assert slices * relay.parts * 64 == 4 * hidden and slices % relay.piece == 0
        assert 2 * WIDE_UNITS * slices * 64 * 2 + triton_relays.RINGS <= H200.shared + RESERVED


@pytest.mark.parametrize(("batch", "kind"), [(64, Relay), (128, Relay), (150, Streams), (256, Streams)])
def test_streams_are_for_large_batches(batch, kind):
    assert isinstance(best_relay(dims(batch, 1024, 1), F32, H200), kind)


@pytest.mark.skipif(not launch.KNOWN, reason="the kernel is in Gluon, of versions of Triton that are known")
def test_the_model_of_streams_knows_the_kernel():
    from aclgrad.ops.lstm.triton.recurrence.warp_specialised import backward_kernel as kernel
    from aclgrad.ops.lstm.triton.recurrence.warp_specialised.tile_ring import RING

    rows, deep, multipliers = kernel.BLOCK.value, kernel.DEEP.value, kernel.MULTIPLIERS.value
    assert kernel.STREAMS.value == triton_relays.STREAMS and multipliers == triton_relays.MULTIPLIERS
    assert rows == triton_relays.STREAM_BLOCK and deep == triton_relays.SLICE and kernel.UNITS.value == WIDE_UNITS
    assert multipliers * RING.value * rows * deep * 2 == triton_relays.RINGS


def test_relays_are_for_float32_warpgroups_and_one_direction():
    assert best_relay(dims(64, 1024, 1), F32, H200) is not None
    assert best_relay(dims(64, 1024, 1), F16, H200) is None
    assert best_relay(dims(64, 1024, 1), F32, SMALL) is None
    assert best_relay(dims(64, 1000, 1), F32, H200) is None
    assert best_relay(dims(64, 1024, 1), F32, None) is None
    assert best_relay(dims(64, 512, 2), F32, H200) is None
