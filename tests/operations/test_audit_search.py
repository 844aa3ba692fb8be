"""Looking for lines of the audit log."""

from __future__ import annotations

import os
from typing import Any

import pytest

from forebay import Forebay
from forebay.domain.job import JobId, QueueName
from forebay.domain.job_history import Event, EventKind
from forebay.operations import audit_search
from forebay.operations.audit_search import AuditQuery, audit_entries, audit_page
from forebay.stores.contract.reader import Reader
from forebay.stores.memory.engine import MemoryEngine
from forebay.testing.manual_clock import ManualClock

LOG = (
    Event(kind=EventKind.QUEUE_CHANGED, occurred_at=10, queue=QueueName("mail"), actor="ann#r1", detail="0"),
    Event(
        kind=EventKind.CANCEL,
        occurred_at=20,
        queue=QueueName("mail"),
        job_id=JobId("j1"),
        actor="bob",
        detail="1",
    ),
    Event(
        kind=EventKind.SWEPT,
        occurred_at=30,
        queue=QueueName("mail"),
        job_id=JobId("j1"),
        actor="w1",
        detail="2",
    ),
    Event(kind=EventKind.API_KEY_CHANGED, occurred_at=40, actor="ann#r2", detail="3"),
    Event(kind=EventKind.QUEUE_CHANGED, occurred_at=50, queue=QueueName("other"), actor="ann#r3", detail="4"),
)


@pytest.fixture
def reader() -> Reader:
    engine = MemoryEngine(clock=ManualClock(now_ms=100))
    engine.store().record_events(LOG)
    return engine.reader()


def details(lines: Any) -> str:
    return "".join(event.detail for _, event in lines)


@pytest.mark.shows("R-HIST-27", "R-SEC-12")
@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        ({}, "4310"),
        ({"kinds": None}, "43210"),
        ({"kinds": frozenset({EventKind.SWEPT, EventKind.API_KEY_CHANGED})}, "32"),
        ({"actor": "ann"}, "430"),
        ({"actor": "ann#r1"}, ""),
        ({"request": "r2"}, "3"),
        ({"queue": "mail"}, "10"),
        ({"job_id": "j1", "kinds": None}, "21"),
        ({"since": 20}, "431"),
        ({"until": 40}, "10"),
        ({"since": 20, "until": 21, "actor": "bob"}, "1"),
    ],
)
def test_lines_that_fit_are_found_newest_first(
    reader: Reader, conditions: dict[str, Any], found: str
) -> None:
    page = audit_page(reader, AuditQuery(**conditions))

    assert (details(page.entries), page.after) == (found, None)
    assert details(audit_entries(reader, AuditQuery(**conditions))) == found


def test_pages_follow_each_other(reader: Reader) -> None:
    first = audit_page(reader, AuditQuery(), limit=3)
    second = audit_page(reader, AuditQuery(), limit=3, after=first.after)

    assert (details(first.entries), details(second.entries), second.after) == ("431", "0", None)
    assert audit_page(reader, AuditQuery(), limit=4).after is None


def test_a_look_costs_no_more_than_so_many_lines(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_search, "MAX_SCANNED", 2)
    monkeypatch.setattr(audit_search, "MAX_PAGE", 2)
    query = AuditQuery(actor="bob")

    first = audit_page(reader, query)
    second = audit_page(reader, query, after=first.after)

    assert (details(first.entries), details(second.entries)) == ("", "1")
    assert audit_page(reader, query, after=second.after).after is None


def test_what_is_older_than_asked_for_is_not_read(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_search, "MAX_PAGE", 1)

    page = audit_page(reader, AuditQuery(since=45))

    assert (details(page.entries), page.after) == ("4", None)


@pytest.mark.parametrize(("actor", "called"), [("shop", "shop"), (None, f"app@{os.uname().nodename}")])
def test_what_a_program_does_is_told_under_its_name(actor: str | None, called: str) -> None:
    app = Forebay("memory://", actor=actor)
    job = app.enqueue("t")
    app.configure_queue("mail", max_length=5)
    app.limits.set("global", concurrency=2)
    app.limits.remove("global")
    job.cancel()
    app.client.revive([job.id])

    entries = app.client.read(lambda reader: audit_page(reader, AuditQuery()).entries)

    assert [event.kind for _, event in entries] == [
        "revived",
        "cancel",
        "limit_changed",
        "limit_changed",
        "queue_changed",
    ]
    assert {event.actor for _, event in entries} == {called}
    app.close()
