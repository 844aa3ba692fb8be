"""What jobs do outside of the store: a log of their starts and ends, and its comparison with the store.

For `kill.py`, which ends worker processes while jobs flow.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from forebay import Forebay, current_job
from forebay.app.task import Task
from forebay.domain.job import JobId
from forebay.domain.job_history import Timeline
from forebay.domain.job_states import JobState
from forebay.domain.settlement import OutcomeKind

SECONDS: Final = 300.0

Token = tuple[str, int]  # a job and its attempt


def opened(log: Path) -> int:
    """The log, to be written to by many processes: lines are short, and appended by one write each."""
    return os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def make_app(url: str, log: int, **options: Any) -> tuple[Forebay, Task[[int], int]]:
    """The app of every process, whose one task writes down its start and its end, or that it was stopped."""
    app = Forebay(url)

    @app.task(name="sleep", **options)
    def sleep(ms: int) -> int:
        context = current_job()
        token = f"{context.id} {context.attempt} {context.fencing_token.worker} {os.getpid()}"
        try:
            os.write(log, f"start {token} {now_ms()}\n".encode())
            time.sleep(ms / 1_000)
            os.write(log, f"end {token} {now_ms()}\n".encode())
        except BaseException:
            os.write(log, f"stop {token} {now_ms()}\n".encode())
            raise
        return ms

    return app, sleep


def now_ms() -> int:
    """By a clock that all processes of a machine share and none of them sets."""
    return time.monotonic_ns() // 1_000_000


class Log:
    """What the jobs have said so far."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read = 0
        self.starts: Counter[Token] = Counter()
        self.ends: Counter[Token] = Counter()
        self.stops: set[Token] = set()
        self.workers: dict[Token, str] = {}
        self.began: dict[Token, int] = {}
        self.ended: dict[Token, int] = {}
        self.open: dict[int, set[Token]] = defaultdict(set)

    def look(self) -> None:
        """Read what is new."""
        with self._file.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        text = text[: text.rfind(b"\n") + 1]
        self._read += len(text)
        for line in text.decode().splitlines():
            self._note(*line.split())

    def _note(self, word: str, job: str, attempt: str, worker: str, pid: str, at: str) -> None:
        token = (job, int(attempt))
        self.workers[token] = worker
        if word == "start":
            self.starts[token] += 1
            self.began[token] = int(at)
            self.open[int(pid)].add(token)
            return
        self.open[int(pid)].discard(token)
        if word == "end":
            self.ends[token] += 1
            self.ended[token] = int(at)
        else:
            self.stops.add(token)


def wait_for_all(app: Forebay, ids: list[JobId], meanwhile: Callable[[], None] = lambda: None) -> None:
    """Until every job is final, or for as long as one has patience; `meanwhile` is called again and again."""
    ends = time.monotonic() + SECONDS
    left = ids
    while left and time.monotonic() < ends:
        left = [job_id for job_id in left if not is_final(app, job_id)]
        meanwhile()
        time.sleep(0.05)


def is_final(app: Forebay, job_id: JobId) -> bool:
    job = app.client.job(job_id)
    return job is not None and job.is_final


def compared(app: Forebay, ids: list[JobId], log: Log) -> Iterator[tuple[Timeline, list[str]]]:
    """Hold the log against the store, job by job: its life, and what is wrong with it. KeyError names a job
    that is gone."""
    attempts: dict[str, set[int]] = defaultdict(set)
    for job_id, attempt in log.starts:
        attempts[job_id].add(attempt)
    for job_id in ids:
        timeline = app.client.history(job_id)
        if timeline is None:
            raise KeyError(f"{job_id} is gone")
        yield timeline, list(check_job(timeline, attempts[job_id], log))


def check_job(timeline: Timeline, started_attempts: set[int], log: Log) -> Iterator[str]:
    """One finisher, and a row for every other attempt that was started."""
    job = timeline.job
    if job.state is not JobState.COMPLETED:
        yield f"{job.id} is {job.state}: {job.reason}"
        return
    finisher = (job.id, job.attempt)
    if log.ends[finisher] != 1:
        yield f"{finisher} finished the job, and the log shows {log.ends[finisher]} ends of it"
    elif log.workers[finisher] != job.worker:
        yield f"{finisher} was finished by {job.worker}, and the log says {log.workers[finisher]}"
    rows = {row.attempt for row in timeline.attempts}
    # What a worker has stopped because it had to leave is handed back, and leaves no row.
    handed_back = {attempt for attempt in started_attempts if (job.id, attempt) in log.stops}
    if missing := started_attempts - rows - handed_back - {job.attempt}:
        yield f"{job.id}: attempts {sorted(missing)} were started and are not in the history"
    if job.attempt in rows:
        yield f"{job.id}: attempt {job.attempt} is in the history as lost and has finished the job"
    if others := [row.attempt for row in timeline.attempts if row.outcome is not OutcomeKind.LOST]:
        yield f"{job.id}: attempts {others} did not end as lost"


def check_store(app: Forebay, log: Log) -> Iterator[str]:
    """What is wrong with the log or the store as a whole."""
    yield from (f"{token} was run {count} times" for token, count in log.starts.items() if count > 1)
    yield from app.client.read(lambda reader: reader.health()).problems
