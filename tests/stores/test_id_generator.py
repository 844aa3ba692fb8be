"""Ids that carry the number of their job, and ids that a caller brought."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.domain.job import JobId
from forebay.domain.job_states import JobState
from forebay.domain.lease import Lease
from forebay.domain.queue_counts import Counts
from forebay.domain.ulid import decode_ulid, encode_ulid, ulid_created_at
from forebay.errors import DuplicateJob
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.id_generator import (
    RANDOM_BITS,
    SEQS_PER_MS,
    IdGenerator,
    SeqIds,
    first_seq,
    new_id,
    seq_in_id,
)
from forebay.stores.sqlite.engine import SqliteEngine
from forebay.testing.manual_clock import ManualClock
from tests.stores.sqlite_support import problems
from tests.stores.support import WORKER, claim, complete, everything, fail, new_job

# A SQLite rowid has 63 bits: 48 of time and 15 of counting.
seqs: Final = st.integers(min_value=0, max_value=2**63 - 1)
noises: Final = st.integers(min_value=0, max_value=2**RANDOM_BITS - 1)


@given(seq=seqs, noise=noises)
def test_an_id_gives_its_number_back(seq: int, noise: int) -> None:
    assert seq_in_id(SeqIds(noise)(seq)) == seq


@given(one=seqs, other=seqs, noise=noises, other_noise=noises)
def test_ids_sort_like_their_numbers(one: int, other: int, noise: int, other_noise: int) -> None:
    low, high = sorted({one, other})[0], sorted({one, other})[-1]

    low_id, high_id = SeqIds(noise)(low), SeqIds(other_noise)(high)

    assert low == high or low_id < high_id


@given(noise=noises, first=seqs, steps=st.lists(st.integers(min_value=-40, max_value=40)))
def test_an_id_does_not_depend_on_those_made_before(noise: int, first: int, steps: list[int]) -> None:
    numbers = [first, *(max(0, min(first + step, 2**63 - 1)) for step in steps)]
    id_of = SeqIds(noise)

    made = [id_of(number) for number in numbers]

    assert made == [SeqIds(noise)(number) for number in numbers]


@given(seq=seqs, noise=noises)
def test_an_id_is_a_uuid_of_version_7_with_its_time(seq: int, noise: int) -> None:
    job_id = SeqIds(noise)(seq)

    as_uuid = uuid.UUID(int=decode_ulid(job_id))
    assert (as_uuid.version, as_uuid.variant) == (7, uuid.RFC_4122)
    assert ulid_created_at(job_id) == seq // SEQS_PER_MS


@given(seq=seqs, one=noises, other=noises)
def test_the_noise_is_kept_whole(seq: int, one: int, other: int) -> None:
    assert (SeqIds(one)(seq) == SeqIds(other)(seq)) == (one == other)


@given(now_ms=st.integers(min_value=0, max_value=2**48 - 1))
def test_a_millisecond_has_numbers_of_its_own(now_ms: int) -> None:
    first, last = first_seq(now_ms), first_seq(now_ms) + SEQS_PER_MS - 1

    assert {ulid_created_at(SeqIds(0)(seq)) for seq in (first, last)} == {now_ms}
    assert first_seq(now_ms + 1) == last + 1


@given(text=st.text(max_size=40))
def test_a_text_that_is_no_ulid_carries_no_number(text: str) -> None:
    assert seq_in_id(text) is None or len(text) == 26


@given(bits=st.integers(min_value=0, max_value=2**128 - 1))
def test_only_a_uuid_of_version_7_carries_a_number(bits: int) -> None:
    as_uuid = uuid.UUID(int=bits)
    is_ours = as_uuid.version == 7 and as_uuid.variant == uuid.RFC_4122

    assert (seq_in_id(encode_ulid(bits)) is not None) == is_ours


@pytest.mark.shows("R-JOB-01")
def test_made_ids_grow_and_are_of_version_7() -> None:
    ids = [new_id() for _ in range(2_000)]

    assert ids == sorted(set(ids))
    assert {uuid.UUID(int=decode_ulid(job_id)).version for job_id in ids} == {7}


def test_made_ids_grow_when_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [5_000, 4_000, 6_000, 1]
    made = iter([uuid.UUID(int=time << 80 | 7 << 76 | 2 << 62) for time in times])
    monkeypatch.setattr("uuid_utils.uuid7", lambda: next(made))
    make = IdGenerator()

    ids = [make() for _ in times]

    assert ids == sorted(set(ids))


def test_ids_that_are_made_together_and_one_by_one_never_meet() -> None:
    make = IdGenerator()

    ids = [make(), *make.create_many(3), make(), *make.create_many(2_000), *make.create_many(1), make()]

    assert ids == sorted(set(ids))
    assert make.create_many(0) == []


# In a database file


@pytest.fixture
def engine(tmp_path: Path, clock: ManualClock) -> Iterator[SqliteEngine]:
    engine = SqliteEngine(str(tmp_path / "jobs.db"), clock=clock)
    yield engine
    assert problems(engine) == ()


def ids_of(store: Store, n: int) -> list[JobId]:
    receipts = store.insert([new_job()] * n)
    return [receipt.id for receipt in receipts if receipt.id is not None]


def test_generated_ids_carry_the_seq_of_their_job(store: Store, reader: Reader, clock: ManualClock) -> None:
    ids = ids_of(store, 300)

    found = [job for job in reader.jobs(ids) if job is not None]
    assert [seq_in_id(job_id) for job_id in ids] == [job.seq for job in found]
    assert {ulid_created_at(job_id) for job_id in ids} == {clock.now_ms()}


@pytest.mark.parametrize("back_ms", [1, 1_000, 86_400_000])
def test_a_clock_set_back_makes_no_seq_and_no_id_twice(
    store: Store, reader: Reader, clock: ManualClock, back_ms: int
) -> None:
    before = ids_of(store, 3)

    clock.set(clock.now_ms() - back_ms)
    after = ids_of(store, 3)

    seqs = [job.seq for job in reader.jobs(before + after) if job is not None]
    assert seqs == sorted(set(seqs))
    assert before + after == sorted(set(before + after))
    assert [job.id for job in claim(store, 6)] == after + before  # ranks go by the clock, seqs only grow


def test_more_jobs_in_a_millisecond_than_it_has_numbers_borrow_from_the_next(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    ids = [job_id for _ in range(34) for job_id in ids_of(store, 1_000)]

    assert len(ids) > SEQS_PER_MS
    assert ids == sorted(set(ids))
    first = first_seq(clock.now_ms())
    assert [seq_in_id(job_id) for job_id in ids] == list(range(first, first + len(ids)))
    assert reader.counts() == {"default": Counts(pending=len(ids))}


def foreign(seq: int) -> JobId:
    return SeqIds(random.getrandbits(RANDOM_BITS))(seq)


def test_a_brought_id_that_looks_like_ours_is_found_and_settled(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    [theirs] = ids_of(store, 1)
    ahead = foreign(first_seq(clock.now_ms()) + 100_000)
    # This one carries the very seq of another job.
    mimic = foreign(seq_in_id(theirs) or 0)
    store.insert([new_job(id=ahead), new_job(id=mimic)])

    jobs = claim(store, 3)
    answer = store.settle_and_claim(WORKER, [complete(job, job.id.encode()) for job in jobs])

    assert set(answer.settled) == {theirs, ahead, mimic}
    found = {job.id: job for job in reader.jobs([theirs, ahead, mimic]) if job is not None}
    assert {job_id: job.result for job_id, job in found.items()} == {
        job_id: job_id.encode() for job_id in (theirs, ahead, mimic)
    }


def test_a_brought_id_that_looks_like_ours_can_be_renewed_failed_and_revived(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    [theirs] = ids_of(store, 1)
    mimic = foreign(seq_in_id(theirs) or 0)
    store.insert([new_job(id=mimic)])
    jobs = {job.id: job for job in claim(store, 2)}

    renewed = store.renew(WORKER, [Lease(mimic, 1)])
    store.settle_and_claim(WORKER, [fail(jobs[mimic], after_ms=0), complete(jobs[theirs])])
    [again] = claim(store, 2)
    store.cancel([mimic], force=True)
    [result] = store.revive([mimic])

    assert len(renewed.renewed) == 1
    assert (again.id, again.attempt) == (mimic, 2)
    assert result.applied
    states = [job.state for job in reader.jobs([theirs, mimic]) if job is not None]
    assert states == [JobState.COMPLETED, JobState.PENDING]


def test_a_brought_id_is_taken_wherever_its_job_is(store: Store, reader: Reader, clock: ManualClock) -> None:
    mine = foreign(first_seq(clock.now_ms()) + 7)
    store.insert([new_job(id=mine)])
    [job] = claim(store)
    store.settle_and_claim(WORKER, [complete(job)])

    with pytest.raises(DuplicateJob) as refused:
        store.insert([new_job(id=mine)])

    assert refused.value.holder == mine
    assert [job.id for job in everything(reader)] == [mine]


def test_an_id_that_only_looks_like_ours_finds_nothing(store: Store, reader: Reader) -> None:
    [theirs] = ids_of(store, 1)
    stranger = foreign(seq_in_id(theirs) or 0)

    assert reader.jobs([stranger]) == [None]
    assert [result.state for result in store.cancel([stranger])] == [None]
    assert [job.id for job in claim(store)] == [theirs]
