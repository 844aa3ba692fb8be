"""A store is moved while a producer goes on writing, and its mover is killed: no job is lost, none is
there twice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from signal import SIGKILL
from typing import Any, Final

import pytest

from forebay import Forebay
from forebay.domain.job import NewJob, QueueName, WorkerId
from forebay.domain.outcome import Completed
from forebay.domain.settlement import decide
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.reader import Reader
from tests.end_to_end.worker_processes import DEADLINE
from tests.urls import url_of
from tests.worker.support import eventually

MAIL: Final = QueueName("mail")
WORKER: Final = WorkerId("w1")
JOBS: Final = 400
TRIES: Final = 10
# Says each id once the store has taken it, and stops when its input is closed.
PRODUCER: Final = """
import sys, threading
from forebay import Forebay
from forebay.domain.job import NewJob, QueueName

store = Forebay(sys.argv[1]).engine.store()
stopped = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stopped.set()), daemon=True).start()
number = 0
while not stopped.is_set():
    number += 1
    job = NewJob(task="t", queue=QueueName("mail"), payload=b"%d" % number, unique_key=f"k{number}")
    print(store.insert([job])[0].id, flush=True)
    stopped.wait(0.01)
"""


def moving(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "forebay", "move", "--json", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def moved(*words: str) -> Any:
    process = moving(*words)
    out, err = process.communicate(timeout=DEADLINE)
    answer = json.loads(out) if out else {}
    # 1 where a producer has written since the last pass.
    assert process.returncode == (0 if answer and answer["compared"]["agrees"] else 1), err
    return answer


@contextmanager
def producing(url: str, path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with path.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-c", PRODUCER, url], stdin=subprocess.PIPE, stdout=out)
        try:
            yield process
        finally:
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(DEADLINE)
            finally:
                process.kill()


@pytest.mark.shows("R-STORE-05")
@pytest.mark.parametrize("engine", ["postgresql", "redis"])
def test_no_job_is_lost_and_none_is_there_twice(engine: str, tmp_path: Path) -> None:
    old, new = f"sqlite:///{tmp_path / 'old.db'}", url_of(engine, tmp_path)
    words = ("--from", old, "--to", new)
    accepted_file = tmp_path / "said"
    with Forebay(old) as app, Forebay(new) as app_there, closing(app.engine.store()) as store:
        there = app_there.engine.reader
        first = list[str]()
        with producing(old, accepted_file):
            eventually(lambda: accepted_file.stat().st_size > 0, DEADLINE)
            with closing(there()) as reader:
                for _ in range(TRIES):  # until one was killed before it had come to its end by itself
                    receipts = store.insert([NewJob(task="t", queue=MAIL)] * JOBS)
                    first += [str(receipt.id) for receipt in receipts]
                    least = _total(reader) + JOBS // 2
                    process = moving(*words)
                    eventually(partial(has_come, reader, least), DEADLINE)
                    process.kill()
                    process.communicate(timeout=DEADLINE)
                    if process.returncode == -SIGKILL:
                        break
                assert process.returncode == -SIGKILL
            assert not moved(*words)["compared"]["different"]
        last = moved(*words, "--finish")
        assert last["compared"]["agrees"] is True

        accepted = [*first, *accepted_file.read_text().split()]
        with closing(app.engine.reader()) as reader:
            assert _total(reader) == 0
        with closing(there()) as reader:
            assert _total(reader) == len(accepted)
            assert reader.health().problems == ()
        assert _run_all(app_there) == Counter(accepted)


def has_come(reader: Reader, least: int) -> bool:
    return _total(reader) >= least


def _total(reader: Reader) -> int:
    return sum(counts.total for counts in reader.counts().values())


def _run_all(app: Forebay) -> Counter[str]:
    """Which jobs a worker gets, and how often."""
    runs: Counter[str] = Counter()
    with closing(app.engine.store()) as store:
        while jobs := store.settle_and_claim(WORKER, claims=[QueueClaim(MAIL, 500)], room=500).jobs:
            runs.update(job.id for job in jobs)
            store.settle_and_claim(WORKER, [decide(job, Completed(b"1"), 0.0) for job in jobs])
    return runs
