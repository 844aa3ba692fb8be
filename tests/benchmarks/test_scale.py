"""More workers, one job from end to end, and a history that is forgotten."""

from __future__ import annotations

import pytest

from benchmarks.compare.servers import server
from benchmarks.explorer import live_through, searches
from benchmarks.scale import MOST_GROWTH, drained, end_to_end, grown, history
from forebay.stores.factory import open_engine

ENGINES = ("sqlite", "postgres", "redis")


@pytest.mark.shows("R-TEST-60")
@pytest.mark.parametrize("engine", ENGINES)
def test_throughput_is_measured_by_the_number_of_workers(engine: str) -> None:
    with server(engine) as made:
        made.empty()

        speeds = [drained(made.url, number, 1_000) for number in (1, 2)]

    assert all(speed > 0 for speed in speeds)


@pytest.mark.shows("R-TEST-60")
def test_a_job_is_followed_from_its_enqueue_to_its_result() -> None:
    with server("sqlite") as made:
        made.empty()

        took = end_to_end(made.url, 5)

    assert len(took) == 5
    assert all(seconds > 0 for seconds in took)


@pytest.mark.shows("R-TEST-60")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_store_that_forgets_what_it_should_does_not_grow(engine: str) -> None:
    with server(engine) as made:
        made.empty()

        kept, sizes = history(engine, made.url, 2_000)

    assert kept > 0
    [goal] = grown(sizes).goals
    assert goal.is_met, f"{sizes} grows by more than {MOST_GROWTH}"


@pytest.mark.shows("R-TEST-60")
def test_what_the_page_asks_for_is_measured_with_a_history() -> None:
    opened = open_engine("memory://")
    live_through(opened.store(), 500)
    reader = opened.reader()

    found = list(searches(reader, 500))

    assert len(found) == 58
    assert all(one.goals for one in found)
    reader.close()
