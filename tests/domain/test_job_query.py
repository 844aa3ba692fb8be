"""Questions and answers for readers."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.domain.job import PastError
from forebay.domain.job_query import MAX_PAGE, JobQuery, check_limit, page_end
from forebay.domain.job_states import JobState
from forebay.domain.job_views import state_info_of
from forebay.domain.queue_counts import Counts
from forebay.domain.store_health import used_ratio
from forebay.errors import ConfigError
from tests.domain.sample_jobs import a_job

ONE_EACH = {state.value: 2**place for place, state in enumerate(JobState)}


def test_counts_have_a_field_for_every_state() -> None:
    assert set(Counts.__struct_fields__) == set(JobState)


def test_live_and_total_add_up() -> None:
    counts = Counts(**ONE_EACH)

    assert counts.live == sum(
        ONE_EACH[state] for state in ("scheduled", "blocked", "pending", "running", "retrying")
    )
    assert counts.total == sum(ONE_EACH.values())


def test_a_query_without_conditions_means_every_job() -> None:
    assert JobQuery() == JobQuery(queues=(), states=(), metadata={})


@pytest.mark.parametrize(
    "conditions", [{"text": "\ud800"}, {"tags": ("\ud800",)}, {"metadata": {"a": ["\ud800"]}}]
)
def test_a_text_that_no_job_can_hold_is_not_looked_for(conditions: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"no job can hold the text '\\ud800'"):
        JobQuery(**conditions)


@pytest.mark.parametrize("limit", [1, 100, MAX_PAGE])
def test_a_page_may_have_up_to_a_thousand_lines(limit: int) -> None:
    check_limit(limit)


@pytest.mark.parametrize("limit", [0, -1, MAX_PAGE + 1, 10.0, True, None, "10"])
def test_any_other_page_is_refused(limit: Any) -> None:
    with pytest.raises(ConfigError, match="limit must be a whole number from 1 to 1000"):
        check_limit(limit)


@pytest.mark.parametrize("after", ["0", "7", "9" * 18])
def test_a_page_goes_on_after_a_seq(after: str) -> None:
    assert page_end(after) == int(after)


@pytest.mark.parametrize("after", ["", "-1", "x", "1.5", " 1", "9" * 19, "\N{ARABIC-INDIC DIGIT ONE}"])
def test_what_no_page_ended_with_is_refused(after: str) -> None:
    with pytest.raises(ConfigError, match="not the end of an earlier page"):
        page_end(after)


@pytest.mark.parametrize(
    ("part", "whole", "found"), [(1, 4, 0.25), (0, 4, 0.0), (None, 4, None), (1, None, None), (1, 0, None)]
)
def test_a_share_is_known_where_both_are(part: int | None, whole: int | None, found: float | None) -> None:
    assert used_ratio(part, whole) == found


def test_the_fate_of_a_job_has_its_last_error() -> None:
    errors = tuple(PastError(attempt=attempt, at=attempt, type="Boom") for attempt in (1, 2))
    job = a_job(state=JobState.DEAD, errors=errors, reason="Boom")

    assert (state_info_of(job).id, state_info_of(job).state, state_info_of(job).reason) == (
        job.id,
        JobState.DEAD,
        "Boom",
    )
    assert state_info_of(job).error == errors[-1]
    assert state_info_of(a_job()).error is None
