"""The lease table that a worker shares with its supervisor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import inf

import pytest

from forebay.domain.lease import Lease
from forebay.worker.assigned_job import Assignment
from forebay.worker.lease_table import ROW_BYTES, LeaseTable
from forebay.worker.slots import Slots
from tests.domain.sample_jobs import a_job


@pytest.fixture
def table() -> Iterator[LeaseTable]:
    table = LeaseTable.create(4)
    yield table
    table.close()


@pytest.fixture
def reader(table: LeaseTable) -> Iterator[LeaseTable]:
    """The same table, as another process has it."""
    reader = LeaseTable(os.dup(table.descriptor), 4)
    yield reader
    reader.close()


def test_a_row_says_what_is_leased_for_how_long_and_when_it_began(
    table: LeaseTable, reader: LeaseTable
) -> None:
    job = a_job(id="mine", attempt=7, timeout_ms=1_500, started_at=1_000, lease_expires_at=31_000)

    row = table.write(job, 12.5)
    assert row is not None
    (before,) = reader.entries()
    assert row.start(13.0)
    (after,) = reader.entries()

    assert (before.lease, before.leased_at, before.lease_seconds) == (Lease(job.id, 7), 12.5, 30.0)
    assert (before.started_at, before.timeout) == (None, 1.5)
    assert after.started_at == 13.0
    assert [after.is_within_timeout(now) for now in (13.0, 14.4, 14.5)] == [True, True, False]


def test_a_job_without_a_time_limit_is_always_within_it(table: LeaseTable, reader: LeaseTable) -> None:
    row = table.write(a_job(timeout_ms=None), 0.0)
    assert row is not None
    row.start(1.0)

    (entry,) = reader.entries()

    assert entry.timeout == inf
    assert entry.is_within_timeout(1e9)


def test_the_longest_id_fits_on_a_line(table: LeaseTable, reader: LeaseTable) -> None:
    name = "\N{PILE OF POO}" * 200

    table.write(a_job(id=name), 0.0)

    assert [entry.lease.job_id for entry in reader.entries()] == [name]


def test_a_line_is_used_again_and_the_last_one_that_was_freed_comes_first(
    table: LeaseTable, reader: LeaseTable
) -> None:
    lines = [table.write(a_job(id=f"job {number}"), 0.0) for number in range(4)]
    assert table.write(a_job(id="one too many"), 0.0) is None
    for row in lines:
        assert row is not None
        row.free()

    assert reader.entries() == []
    assert table.write(a_job(id="another"), 0.0) is lines[-1]
    assert [entry.lease.job_id for entry in reader.entries()] == ["another"]


def test_a_job_that_is_wanted_for_others_does_not_begin(table: LeaseTable, reader: LeaseTable) -> None:
    row = table.write(a_job(), 0.0)
    assert row is not None
    (entry,) = reader.entries()

    reader.request_return(entry)

    assert not reader.is_started(entry)
    assert not row.start(1.0)
    assert not reader.is_started(entry)


def test_a_request_that_comes_too_late_changes_nothing(table: LeaseTable, reader: LeaseTable) -> None:
    row = table.write(a_job(), 0.0)
    assert row is not None
    (entry,) = reader.entries()

    assert row.start(1.0)
    reader.request_return(entry)

    assert reader.is_started(entry)


def test_a_request_is_for_one_lease_and_not_for_the_next_on_its_line(
    table: LeaseTable, reader: LeaseTable
) -> None:
    row = table.write(a_job(id="first"), 0.0)
    assert row is not None
    (entry,) = reader.entries()
    reader.request_return(entry)
    row.free()

    assert reader.is_started(entry)
    again = table.write(a_job(id="second"), 0.0)

    assert again is row
    assert reader.is_started(entry)
    assert row.start(1.0)


def test_half_a_line_is_not_read(table: LeaseTable, reader: LeaseTable) -> None:
    table.write(a_job(id="\N{PILE OF POO}"), 0.0)
    (entry,) = reader.entries()
    at = table.memory.find("\N{PILE OF POO}".encode(), ROW_BYTES)

    table.memory[at] = 0xFF

    assert reader.entries() == []
    assert reader.is_started(entry)


def test_the_turns_of_the_coordinator_are_seen(table: LeaseTable, reader: LeaseTable) -> None:
    assert reader.ticked_at == 0.0

    table.mark_tick(42.0)
    table.write(a_job(), 0.0)

    assert reader.ticked_at == 42.0


def test_slots_write_a_line_for_each_lease_while_it_is_held(table: LeaseTable, reader: LeaseTable) -> None:
    slots = Slots(2)
    slots.lease_table = table
    one, other = (Assignment(a_job(id=name), 1.0, leased_at=0.5) for name in ("one", "other"))

    slots.add([one, other])
    assert one.mark_started(2.0)
    slots.end(other)

    assert [(entry.lease, entry.started_at) for entry in reader.entries()] == [(one.lease, 2.0)]
    assert one.started_at == 2.0


def test_an_assignment_that_was_given_back_does_not_begin(table: LeaseTable, reader: LeaseTable) -> None:
    slots = Slots(1)
    slots.lease_table = table
    one = Assignment(a_job(), 1.0)
    slots.add([one])

    reader.request_return(reader.entries()[0])

    assert not one.mark_started(2.0)
    assert one.started_at is None


def test_closing_twice_is_fine() -> None:
    table = LeaseTable.create(1)

    table.close()
    table.close()
