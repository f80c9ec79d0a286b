"""The fairness simulation of the benchmarks, at a scale that takes a few seconds."""

import pytest

from tests.benchmarks.simulation import Scene, Seen, percentile, simulate

SCENE = Scene(huge=20_000, small=100, cells=10, workers=20, per_worker=3, slots=10, edits=2.0)


@pytest.fixture(scope="module")
def seen() -> Seen:
    return simulate(SCENE)


def test_a_small_sweep_waits_for_its_equal_part_and_no_longer(seen: Seen) -> None:
    """All ask at once, so the last of the small ones is served when everybody has had ten cells."""
    assert len(seen.waits) == SCENE.small
    assert seen.worst <= 1.25 * seen.level
    assert seen.p99 <= seen.worst
    assert seen.jain >= 0.95


def test_the_limit_of_the_provider_is_used_up_and_never_passed(seen: Seen) -> None:
    assert seen.most_in_a_second <= seen.limit
    assert seen.utilisation >= 0.95


def test_an_edit_does_not_wait_for_sweeps_to_be_over(seen: Seen) -> None:
    assert len(seen.edit_waits) > 10
    assert percentile(seen.edit_waits, 0.5) <= 1.5
    assert max(seen.edit_waits) <= seen.level / 2
