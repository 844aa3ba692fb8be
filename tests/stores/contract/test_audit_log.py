"""The audit log: kept whatever becomes of the jobs, and linked to a chain of hashes."""

from __future__ import annotations

import pytest

from forebay.domain.audit_hash_chain import START, ChainLine, find_flaw
from forebay.domain.job import DAY_MS, JobId
from forebay.domain.job_history import ACTIONS, AUDIT_RETENTION_MS, Event, EventKind
from forebay.domain.job_update import JobUpdate
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import MAIL, put


def kinds_of(reader: Reader, job_id: JobId) -> list[EventKind]:
    log = reversed(reader.audit(limit=1_000))
    return [event.kind for _, event in log if event.job_id == job_id and event.is_action]


def details(lines: list[ChainLine]) -> str:
    return "".join(line.event.detail for line in lines)


def act(store: Store, *details: str, at: int = 0) -> None:
    store.record_events(
        [
            Event(kind=EventKind.API_KEY_CHANGED, actor="ann", detail=detail, occurred_at=at)
            for detail in details
        ]
    )


def check_links(lines: list[ChainLine]) -> None:
    for before, line in zip([None, *lines], lines, strict=False):
        assert find_flaw(line, None if before is None else before.link) is None


# Lines stay


@pytest.mark.shows("R-HIST-27", "R-SEC-12")
def test_actions_stay_in_the_log_when_their_job_is_deleted(store: Store, reader: Reader) -> None:
    job_id = put(store)
    store.update_job(job_id, JobUpdate(priority=7), actor="mallory")
    store.cancel([job_id], actor="mallory")
    store.delete([job_id], actor="mallory")

    assert kinds_of(reader, job_id) == [EventKind.UPDATED, EventKind.CANCEL, EventKind.DELETED]
    assert reader.history(job_id) is None


def test_actions_stay_in_the_log_when_their_job_is_pruned(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job_id = put(store)
    store.cancel([job_id], actor="mallory")
    clock.advance(ms=8 * DAY_MS)

    assert store.prune() == 1
    assert kinds_of(reader, job_id) == [EventKind.CANCEL]


def test_actions_beyond_what_a_history_holds_are_all_in_the_log(store: Store, reader: Reader) -> None:
    job_id = put(store)
    for number in range(105):
        store.update_job(job_id, JobUpdate(metadata={"n": str(number)}), actor="mallory")
    store.cancel([job_id], actor="mallory")

    assert kinds_of(reader, job_id) == [EventKind.UPDATED] * 105 + [EventKind.CANCEL]
    found = reader.history(job_id)
    assert found is not None
    assert [event.kind for event in found.events[99:]] == [EventKind.UPDATED, EventKind.EVENTS_OMITTED]
    assert found.events[-1].detail == "6"


@pytest.mark.parametrize("kind", sorted(ACTIONS))
def test_every_action_is_told_once(store: Store, reader: Reader, kind: EventKind) -> None:
    job_id = put(store)
    store.record_events([Event(kind=kind, job_id=job_id, queue=MAIL, attempt=2, actor="a#b", detail="d")])

    [(number, event)] = reader.audit()

    assert event == Event(
        kind=kind,
        occurred_at=event.occurred_at,
        job_id=job_id,
        queue=MAIL,
        attempt=2,
        actor="a#b",
        detail="d",
    )
    assert (number > 0, reader.count_unchained()) == (True, 1)


def test_the_log_and_other_events_are_told_in_their_order(store: Store, reader: Reader) -> None:
    job_id = put(store)
    entries = []
    for number in range(6):
        kind = EventKind.CANCEL if number % 2 else EventKind.COMMENT
        store.record_events([Event(kind=kind, job_id=job_id, detail=str(number))])
        entries.append(str(number))

    first = reader.audit(limit=4)
    second = reader.audit(limit=4, after=first[-1][0])

    assert [event.detail for _, event in (*first, *second)] == entries[::-1]


# The chain


def test_lines_join_the_chain_once_and_in_their_order(store: Store, reader: Reader) -> None:
    assert (store.chain_audit(), reader.audit_chain()) == (0, [])
    act(store, "a", "b", "c")
    store.record_events([Event(kind=EventKind.COMMENT, detail="no action")])

    assert (store.chain_audit(2), reader.count_unchained()) == (2, 1)
    act(store, "d")
    assert (store.chain_audit(), store.chain_audit(), reader.count_unchained()) == (2, 0, 0)

    lines = reader.audit_chain()
    assert details(lines) == "abcd"
    assert [line.position for line in lines] == [1, 2, 3, 4]
    assert lines[0].previous == START.hash
    check_links(lines)
    numbers = [number for number, event in reader.audit() if event.kind is EventKind.API_KEY_CHANGED]
    assert [line.number for line in lines] == numbers[::-1]


def test_a_line_is_chained_with_all_that_it_says(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, {"weight": 3}, actor="ann#r1")
    job_id = put(store)
    store.cancel([job_id], "why not", actor="bob")
    store.chain_audit()

    first, second = reader.audit_chain()

    assert [(line.number, line.event) for line in (second, first)] == reader.audit()
    assert first.event.changes == {"weight": (1, 3)}
    check_links([first, second])


def test_the_chain_is_read_page_by_page(store: Store, reader: Reader) -> None:
    act(store, *"abcde")
    store.chain_audit()

    first = reader.audit_chain(limit=3)
    second = reader.audit_chain(limit=3, after=first[-1].position)

    assert (details(first), details(second)) == ("abc", "de")
    assert reader.audit_chain(after=second[-1].position) == []


def test_what_an_action_that_fails_has_written_is_not_in_the_log(store: Store, reader: Reader) -> None:
    assert store.cancel([JobId("unknown")])[0].applied is False

    assert (reader.audit(), reader.count_unchained()) == ([], 0)


# Retention


@pytest.mark.shows("R-HIST-05")
def test_the_newest_of_the_old_lines_stays_as_the_anchor_of_the_chain(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    act(store, "a", "b", "c")
    clock.advance(ms=1_000)
    act(store, "d", "e")
    store.chain_audit()
    whole = reader.audit_chain()
    clock.advance(ms=AUDIT_RETENTION_MS - 1_000)

    store.prune()

    assert reader.audit_chain() == whole[2:]
    assert [event.detail for _, event in reader.audit()] == ["e", "d", "c"]
    check_links(reader.audit_chain())


def test_lines_that_are_not_chained_yet_do_not_shorten_the_chain(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    act(store, "a", "b")
    clock.advance(ms=AUDIT_RETENTION_MS)
    act(store, "c", "d")
    store.chain_audit(3)

    store.prune()

    assert (details(reader.audit_chain()), reader.count_unchained()) == ("bc", 1)


def test_the_chain_goes_on_when_all_its_lines_are_old(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    act(store, "a", "b")
    store.chain_audit()
    clock.advance(ms=AUDIT_RETENTION_MS)
    store.prune()
    store.prune()
    act(store, "c")
    store.chain_audit()

    lines = reader.audit_chain()

    assert (details(lines), [line.position for line in lines]) == ("bc", [2, 3])
    check_links(lines)


def test_lines_are_pruned_a_few_at_a_time_from_the_oldest_on(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    act(store, *"abcde")
    store.chain_audit()
    clock.advance(ms=AUDIT_RETENTION_MS)

    store.prune(2)

    assert details(reader.audit_chain()).endswith("e")
    check_links(reader.audit_chain())
    for _ in range(3):
        store.prune(2)
    assert details(reader.audit_chain()) == "e"


def test_a_line_that_is_old_behind_one_that_is_not_stays(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    clock.advance(ms=AUDIT_RETENTION_MS)
    act(store, "a", at=1)
    act(store, "b")
    act(store, "c", at=1)
    store.chain_audit()

    store.prune()

    assert details(reader.audit_chain()) == "abc"


def test_an_old_line_that_is_not_chained_stays(store: Store, reader: Reader, clock: ManualClock) -> None:
    act(store, "a")
    clock.advance(ms=2 * AUDIT_RETENTION_MS)

    store.prune()

    assert (reader.count_unchained(), store.chain_audit(), details(reader.audit_chain())) == (1, 1, "a")
