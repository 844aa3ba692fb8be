"""Checking the chain of the audit log, page by page and against an export."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from forebay.domain.job import DAY_MS
from forebay.domain.job_history import AUDIT_RETENTION_MS, Event, EventKind
from forebay.operations.audit_check import AuditFlaw, check_audit
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.memory.engine import MemoryEngine
from forebay.stores.memory.state import State
from forebay.testing.manual_clock import ManualClock


class Log:
    """An audit log of five lines whose store an attacker can write to."""

    def __init__(self, clock: ManualClock) -> None:
        engine = MemoryEngine(clock=clock)
        self.store: Store = engine.store()
        self.reader: Reader = engine.reader()
        self.state: State = engine._state
        self.write(*"abcde")

    def write(self, *details: str) -> None:
        self.store.record_events(
            [Event(kind=EventKind.API_KEY_CHANGED, actor="ann", detail=detail) for detail in details]
        )
        self.store.chain_audit()

    def flaw(self, **how: object) -> tuple[int, str] | None:
        flaw = check_audit(self.reader, **how).flaw  # type: ignore[arg-type]
        return None if flaw is None else (flaw.position, flaw.reason)


@pytest.fixture
def log(clock: ManualClock) -> Log:
    return Log(clock)


def test_a_sound_log_fits_up_to_its_head(log: Log) -> None:
    log.store.record_events([Event(kind=EventKind.API_KEY_CHANGED, detail="new")])

    found = check_audit(log.reader)

    assert (found.lines, found.flaw, found.unchained, found.next_after) == (5, None, 1, None)
    assert found.head == log.reader.audit_chain()[-1].link


def test_an_empty_log_fits() -> None:
    engine = MemoryEngine(clock=ManualClock())
    engine.store().close()

    found = check_audit(engine.reader())

    assert (found.lines, found.head, found.flaw, found.unchained) == (0, None, None, 0)


def test_the_first_line_that_was_changed_is_named(log: Log) -> None:
    line = log.state.audit_chain[3]
    log.state.audit_chain[3] = replace(line, event=replace(line.event, actor="bob"))

    found = check_audit(log.reader)

    assert found.flaw == AuditFlaw(position=3, number=line.number, reason="its content does not fit its hash")
    assert found.lines == 2


def test_a_line_that_is_gone_is_named_by_the_next_one(log: Log) -> None:
    del log.state.audit_chain[3]

    assert log.flaw() == (4, "expected position 3: lines are missing or stand twice")


def test_a_beginning_that_is_gone_and_was_not_old_is_found(log: Log, clock: ManualClock) -> None:
    del log.state.audit_chain[1]

    assert log.flaw() == (2, "the lines before it are gone, and it is not old enough to be the anchor")
    clock.advance(ms=AUDIT_RETENTION_MS - DAY_MS)
    assert log.flaw() is None


def test_what_was_pruned_is_no_flaw(log: Log, clock: ManualClock) -> None:
    clock.advance(ms=AUDIT_RETENTION_MS)
    log.write("f")
    log.store.prune()

    found = check_audit(log.reader)

    assert (found.lines, found.flaw) == (2, None)


@pytest.mark.parametrize("limit", [2, 3, 5, 6])
def test_a_log_is_checked_in_pages(log: Log, limit: int) -> None:
    after, heads = 0, []
    while True:
        found = check_audit(log.reader, after=after, limit=limit)
        assert found.flaw is None
        heads.append(found.head)
        if found.next_after is None:
            break
        after = found.next_after

    assert heads[-1] == log.reader.audit_chain()[-1].link


def test_a_line_between_two_pages_is_held_against_both(log: Log) -> None:
    line = log.state.audit_chain[2]
    log.state.audit_chain[2] = replace(line, event=replace(line.event, actor="bob"))
    assert log.flaw(after=2) == (2, "its content does not fit its hash")

    log.state.audit_chain[2] = line
    log.state.audit_chain[3] = replace(log.state.audit_chain[3], previous="0" * 64)
    assert log.flaw(after=2) == (3, "it does not carry the hash of the line before it")

    del log.state.audit_chain[2]
    assert log.flaw(after=2) == (3, "expected position 2: lines are missing or stand twice")


def test_a_log_that_was_written_anew_is_not_the_one_that_was_exported(log: Log) -> None:
    exported = {line.position: line.hash for line in log.reader.audit_chain()}
    assert log.flaw(exported=exported) is None
    log.write("f")
    assert log.flaw(exported=exported) is None

    log.state.audit.clear()
    log.state.audit_chain.clear()
    log.write(*"abxde")

    assert log.flaw() is None
    assert log.flaw(exported=exported) == (1, "it is not the line that was exported")


@pytest.mark.parametrize("left", [0, 4])
def test_a_log_that_was_cut_short_ends_before_what_was_exported(log: Log, left: int) -> None:
    exported = {line.position: line.hash for line in log.reader.audit_chain()}
    for position in range(left + 1, 6):
        del log.state.audit_chain[position]

    assert log.flaw() is None
    reason = "lines up to position 5 were exported, and the log ends before"
    assert log.flaw(exported=exported) == (left + 1, reason)
