"""The short form of `make chaos`: real nodes, workers and a real PostgreSQL, under a few faults of each sort."""

import pytest

from chaos import campaign, moves
from chaos.verdicts import table

OF_DATABASE = ["kill_node", "kill_worker", "crash_database", "lose_answers", "cut_database", "skew"]
OF_WAYS = ["pause_node", "pause_worker", "deafen_database", "kill_broker", "lose_stream", "poison"]
ALWAYS = ("I1", "I2", "I3", "I4", "I5", "I12", "I25", "I27", "I29", "I30")


async def under(kinds, tmp_path):
    """What must have happened is asked for by the verdicts: each kind, enough tasks, and work over the broker."""
    settings = campaign.Settings(
        seed=1, workers=3, kinds=kinds, tasks_min=1_500, rate=120, calm_s=2, gap_s=0.3, gate=False
    )
    return await campaign.run(settings, tmp_path, print)


@pytest.mark.slow
@pytest.mark.proves("F1", "F4", "F9", "F10", "F16", "I16", *ALWAYS)
@pytest.mark.proves("S001-59", "S001-63", "S001-170", "S001-171")
async def test_a_cluster_under_faults_loses_nothing_and_doubles_nothing(tmp_path):
    outcome = await under(OF_DATABASE, tmp_path)

    assert not outcome.broken, table(outcome.verdicts)


@pytest.mark.slow
@pytest.mark.proves("F2", "F3", "F5", "F19", "F20", "F28", *ALWAYS)
async def test_pauses_lost_answers_a_lost_broker_and_poison_lose_nothing_and_double_nothing(tmp_path):
    outcome = await under(OF_WAYS, tmp_path)

    assert not outcome.broken, table(outcome.verdicts)


@pytest.mark.slow
@pytest.mark.proves("F1", "I12", "I25", "I29")
async def test_an_owner_that_is_killed_under_load_is_replaced_within_seconds(tmp_path):
    found = await moves.fail_over(tmp_path, times=3, rate=60, seed=1, tell=print)

    assert [one for one in found.verdicts if not one.kept] == [], table(found.verdicts)
    assert max(found.accepted_s) < moves.LEASE_TTL_S + 7, found.as_json()


@pytest.mark.slow
@pytest.mark.proves("F25", "I25", "I30")
async def test_a_clean_stop_under_load_hands_over_without_losing_or_repeating_anything(tmp_path):
    found = await moves.hand_over(tmp_path, times=3, rate=60, seed=1, tell=print)

    assert [one for one in found.verdicts if not one.kept] == [], table(found.verdicts)
    # How short the pause is, `make failover` measures on a quiet machine; here it only must not be a lease long.
    assert moves.figures_of(found.accepted_s)["p50"] < 5.0, found.as_json()
