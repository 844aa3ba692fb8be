"""Children of one job, more of them than a transaction takes: each begins to wait as it would alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from forebay.domain.job import JobId, QueueName
from forebay.domain.lifecycle import JobState
from forebay.domain.workflow import RELEASED_AT_ONCE
from forebay.stores.protocol import Reader, Store
from forebay.testing.clock import ManualClock
from tests.stores.contract.steps import DAY, HOUR, MAIL, MINUTE, SECOND, T0, claimed, look, put, put_many
from tests.stores.contract.test_workflows import after, run
from tests.stores.support import new_job

ODD: Final[dict[str, dict[str, Any]]] = {
    "nothing": {},
    "priority": {"priority": 7},
    "queue": {"queue": MAIL},
    "share": {"limit_keys": {"share": "acme"}},
    "delay": {"delay_ms": DAY},
    "deadline": {"deadline_at": T0 + 5 * MINUTE},
    "expiry": {"expires_at": T0 + HOUR},
    "tags": {"tags": ("red",)},
}
MANY: Final = 3 * RELEASED_AT_ONCE


@pytest.mark.shows("R-DEP-11")
@pytest.mark.parametrize("odd", ODD)
def test_each_of_many_children_begins_to_wait_as_it_would_alone(
    store: Store, reader: Reader, clock: ManualClock, odd: str
) -> None:
    many, few = put(store, id=JobId("many")), put(store, id=JobId("few"))
    ids = [JobId(f"{number:04}") for number in range(MANY)]
    odd_ones = {*ids[99::100], *ids[-RELEASED_AT_ONCE - 100 :]}  # some among others, and many that are alike
    store.insert(
        [new_job(id=each, depends_on=after(many), **(ODD[odd] if each in odd_ones else {})) for each in ids]
    )
    plain, alone = put(store, depends_on=after(few)), put(store, depends_on=after(few), **ODD[odd])
    clock.advance(ms=SECOND)

    run(store, many, few)
    while store.promote():
        pass

    as_plain, as_alone = places(reader, [plain, alone])
    assert places(reader, ids) == [as_alone if each in odd_ones else as_plain for each in ids]
    assert reader.health().problems == ()


def places(reader: Reader, ids: Sequence[JobId]) -> list[tuple[object, ...]]:
    return [
        (job.state, job.queue, job.gate, job.rank, job.capped, job.ready_at, job.run_at, job.expires_at)
        for job in reader.jobs(ids)
        if job is not None
    ]


@pytest.mark.shows("R-DEP-11")
def test_those_of_many_children_that_wait_for_others_besides_stay_blocked(
    store: Store, reader: Reader
) -> None:
    many, other = put(store, id=JobId("many")), put(store, queue=QueueName("other"))
    put_many(store, MANY - 2, depends_on=after(many))
    # Of the first lot, and of the last.
    joins = [put(store, id=JobId(name), depends_on=after(many, other)) for name in ("0", "z")]

    run(store, many)
    while store.promote():
        pass

    assert [look(reader, join).state for join in joins] == [JobState.BLOCKED] * 2
    assert reader.health().problems == ()
    assert len(claimed(store, 2 * MANY)) == MANY - 2
