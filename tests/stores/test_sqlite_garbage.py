"""What an insert needs is gone when it is over, without the garbage collector."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from forebay.stores.sqlite.engine import SqliteEngine
from forebay.stores.sqlite.insert import InsertBatch
from tests.stores.support import new_job


def insert_batches() -> int:
    return sum(type(one) is InsertBatch for one in gc.get_objects())


@pytest.mark.parametrize("jobs", [1, 300])
def test_an_insert_does_not_hold_on_to_itself(tmp_path: Path, jobs: int) -> None:
    store = SqliteEngine(str(tmp_path / "jobs.db")).store()
    gc.collect()
    gc.disable()
    try:
        before = insert_batches()  # the error of another test may hold on to some
        store.insert([new_job()] * jobs)
        after = insert_batches()
    finally:
        gc.enable()
    store.close()

    assert after <= before
