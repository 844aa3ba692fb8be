"""A process dies right after it has ended a job, and before what waited for that job is released."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from signal import SIGKILL
from typing import Final

import pytest

from forebay.domain.dependency_graph import dependencies_of
from forebay.domain.job import JobId, WorkerId
from forebay.domain.job_states import JobState
from forebay.stores.factory import open_engine
from tests.stores.contract.steps import look, put
from tests.stores.support import claim, complete
from tests.urls import url_of

ROOT: Final = Path(__file__).resolve().parents[2]
# Where the release is a step of its own. On SQLite both are one transaction.
LATER: Final = ("postgresql", "redis")
PROGRAM: Final = """
import os, signal, sys

from forebay.stores.factory import open_engine
from tests.stores.support import claim, complete

store = open_engine(sys.argv[1]).store()
[parent] = claim(store)
store._propagate = lambda: os.kill(os.getpid(), signal.SIGKILL)
store.settle_and_claim(parent.worker, [complete(parent)])
"""


@pytest.mark.shows("R-DEP-11")
@pytest.mark.parametrize("engine", LATER)
@pytest.mark.parametrize("waits", ["by an edge", "in a sequence"])
def test_what_waited_for_a_job_is_released_by_the_next_promoter(
    engine: str, waits: str, tmp_path: Path
) -> None:
    url = url_of(engine, tmp_path)
    with closing(open_engine(url).store()) as store, closing(open_engine(url).reader()) as reader:
        sequence = "s" if waits == "in a sequence" else None
        parent = put(store, sequence=sequence)
        child = put(store, sequence=sequence, depends_on=() if sequence else dependencies_of([parent]))
        command = [sys.executable, "-c", PROGRAM, url]

        died = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)

        assert died.returncode == -SIGKILL, died.stderr
        assert [look(reader, job).state for job in (parent, child)] == [JobState.COMPLETED, JobState.BLOCKED]
        store.promote()
        [job] = claim(store)
        store.settle_and_claim(WorkerId(job.worker or ""), [complete(job)])
        store.promote()
        assert (job.id, look(reader, child).state, claim(store)) == (JobId(child), JobState.COMPLETED, [])
