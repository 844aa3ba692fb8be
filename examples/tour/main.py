"""A tour in half a minute: thousands of jobs, two workers, one of them killed, and a proof: `make demo`.

The jobs wait on two queues, with priorities and delays; some fail and are retried, one dies for good, a few
are cancelled. In the middle one worker gets SIGKILL while it runs jobs, and another takes its place. The
table at the end is worked out from two independent sources, the store and the file in which the tasks wrote
down what they did. The exit code is 1 if a job was lost or finished twice.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from statistics import median
from types import FrameType, ModuleType
from typing import Final

from forebay.app.app import Forebay
from forebay.domain.history import Timeline
from forebay.domain.job import JobId, JobSummary, NewJob
from forebay.domain.lifecycle import JobState
from forebay.domain.query import Counts, JobQuery
from forebay.domain.settlement import Ending

HERE: Final = Path(__file__).resolve().parent
LONGEST_SECONDS: Final = 55.0
LINE_EVERY_SECONDS: Final = 3.0
CANCELLED: Final = 10
URGENT: Final = 50


# Accept


def accept(app: Forebay, tasks: ModuleType, size: int, dice: random.Random) -> set[JobId]:
    """Enqueue everything; answers the ids of the jobs that the store has promised to keep."""
    jobs = [*plan(tasks, size, dice), tasks.hopeless.job()]
    accepted = {handle.id for start in range(0, len(jobs), 500) for handle in app.enqueue_many(jobs[start : start + 500])}
    unwanted = app.enqueue_many([tasks.letter.using(delay=3_600).job("nobody", ms=1) for _ in range(CANCELLED)])
    for handle in unwanted:
        handle.cancel("nobody wants it any more")
    return accepted | {handle.id for handle in unwanted}


def plan(tasks: ModuleType, size: int, dice: random.Random) -> Iterator[NewJob]:
    """The jobs in the order of their enqueuing; urgent letters come last."""
    share = size // 20
    for number in range(size - 11 * share):
        yield tasks.letter.job(f"reader {number}", ms=dice.randrange(10, 60))
    for number in range(5 * share):
        yield tasks.report.job(number, ms=dice.randrange(20, 90))
    for _ in range(2 * share):
        yield tasks.ping.job(ms=dice.randrange(10, 60))
    for _ in range(share):
        yield tasks.flaky.job(ms=dice.randrange(5, 20))
    for _ in range(share):
        yield tasks.letter.using(delay=dice.uniform(1, 8)).job("a late reader", ms=dice.randrange(5, 20))
    for number in range(2 * share):
        yield tasks.letter.using(priority=URGENT).job(f"an impatient reader {number}", ms=dice.randrange(10, 60))


# Work


class Crew:
    """The worker processes of the tour. Whatever happens, none of them outlives it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = (folder / "workers.log").open("ab")
        self._all: list[subprocess.Popen[bytes]] = []

    def hire(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "forebay", "worker", "tour_tasks:app", "--threads", "4"]
        one = subprocess.Popen(command, cwd=HERE, stdout=self._log, stderr=self._log)  # noqa: S603 - our own
        self._all.append(one)
        return one

    def check(self) -> None:
        """Raise if a worker has ended by itself."""
        for one in self._all:
            if one.poll() not in (None, -signal.SIGKILL):
                raise SystemExit(f"worker {one.pid} ended by itself:\n{self.log()}")

    def stop(self) -> list[int]:
        """Ask all to stop in order; answers the exit codes of those that were not killed."""
        alive = [one for one in self._all if one.poll() is None]
        for one in alive:
            one.terminate()
        return [one.wait(timeout=20) for one in alive]

    def close(self) -> None:
        for one in self._all:
            if one.poll() is None:
                one.kill()
            one.wait()
        self._log.close()

    def log(self) -> str:
        return (self._folder / "workers.log").read_text(encoding="utf-8", errors="replace")[-4_000:]


def kill_at_work(worker: subprocess.Popen[bytes], effects: Path) -> set[tuple[str, int]]:
    """Kill a worker that has started jobs and not ended them; answers these attempts."""
    while True:
        worker.send_signal(signal.SIGSTOP)  # so that it cannot end a job between the look and the kill
        running = Effects(effects).unended(worker.pid)
        if running:
            worker.kill()
            worker.wait()
            return running
        worker.send_signal(signal.SIGCONT)
        time.sleep(0.01)


class View:
    """One line about the queues: rewritten in place on a terminal, printed now and then elsewhere."""

    def __init__(self, app: Forebay, accepted: int) -> None:
        self._app = app
        self._accepted = accepted
        self._is_live = sys.stdout.isatty()
        self._next_at = 0.0
        self.final = 0

    def look(self) -> None:
        counts = self._app.client.counts()
        self.final = sum(one.total - one.live for one in counts.values())
        if self._is_live:
            print(f"\r{self._line(counts)}", end="", flush=True)
        elif time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + LINE_EVERY_SECONDS
            print(self._line(counts), flush=True)

    def say(self, text: str) -> None:
        """Print a line of its own."""
        print(f"\r{text:<110}" if self._is_live else text, flush=True)

    def _line(self, counts: dict[str, Counts]) -> str:  # type: ignore[type-arg]
        parts = [f"{self.final:>6,} of {self._accepted:,} final"]
        for name, one in sorted(counts.items()):
            later = one.scheduled + one.retrying
            parts.append(f"{name}: {one.pending:>5,} pending {one.running:>3} running {later:>4} later")
        return "  |  ".join(parts)


def watch(view: View, crew: Crew, until: Callable[[], bool], deadline: float) -> bool:
    """Look until something is the case; false if it takes too long."""
    while time.monotonic() < deadline:
        view.look()
        if until():
            return True
        crew.check()
        time.sleep(0.1)
    return False


# Prove


class Effects:
    """What the tasks wrote down: for each attempt of each job its lines, in order."""

    def __init__(self, file: Path) -> None:
        self._lines: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        self._pids: dict[tuple[str, int], int] = {}
        self._ends: defaultdict[str, list[int]] = defaultdict(list)
        for line in file.read_text(encoding="ascii").splitlines():
            what, job_id, attempt, pid = line.split()
            self._lines[job_id, int(attempt)].append(what)
            self._pids[job_id, int(attempt)] = int(pid)
            if what == "end":
                self._ends[job_id].append(int(attempt))

    def unended(self, pid: int) -> set[tuple[str, int]]:
        """The attempts that this process has started and not ended."""
        return {one for one, lines in self._lines.items() if lines == ["start"] and self._pids[one] == pid}

    def ends(self, job_id: str) -> list[int]:
        """The attempts of a job that came to a good end."""
        return self._ends[job_id]

    def of(self, job_id: str, attempt: int) -> list[str]:
        return self._lines[job_id, attempt]

    def started(self) -> Counter[str]:
        return Counter(job_id for job_id, _ in self._lines)

    def repeated(self) -> int:
        """Attempts that were started twice."""
        return sum(lines.count("start") > 1 for lines in self._lines.values())


@dataclass
class Proof:
    """The findings. What must be zero is in `faults`."""

    states: Counter[JobState] = field(default_factory=Counter)
    retried: int = 0
    lost_attempts: set[tuple[str, int]] = field(default_factory=set)
    run_again: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def judge(self, job: JobSummary, effects: Effects, timeline: Timeline | None) -> None:
        """One job: is there one attempt that finished it, and does the world know of the same one?"""
        attempts = timeline.attempts if timeline else ()
        lost = {one.attempt for one in attempts if one.ending is Ending.LOST}
        self.states[job.state] += 1
        self.retried += any(one.ending is Ending.FAILED for one in attempts)
        self.lost_attempts |= {(job.id, attempt) for attempt in lost}
        ends = effects.ends(job.id)
        # A worker that was killed between the end of a task and its settlement leaves an effect behind, and
        # the job is run again: that is "at least once". The lost attempt can finish nothing any more.
        finishers = [attempt for attempt in ends if attempt not in lost]
        self.run_again += len(ends) > len(finishers)
        self.faults["finished twice"] += len(finishers) > 1
        self.faults["without its finisher"] += not has_finisher(job, finishers, effects)


def has_finisher(job: JobSummary, finishers: list[int], effects: Effects) -> bool:
    """Whether the effects agree with the store about how the job ended, and with which attempt."""
    match job.state:
        case JobState.COMPLETED:
            return job.attempt in finishers
        case JobState.DEAD:
            return not finishers and effects.of(job.id, job.attempt) == ["start", "fail"]
        case JobState.CANCELLED:
            return not effects.started()[job.id]
        case _:
            return False


def prove(app: Forebay, accepted: set[JobId], effects: Effects, killed: set[tuple[str, int]]) -> Proof:
    """Compare what was accepted, what the store says and what the tasks did."""
    proof = Proof()
    jobs = {job.id: job for job in stored(app)}
    for job in jobs.values():
        # Only bad attempts have lines in a history, and after one there is always another.
        timeline = app.client.history(job.id) if job.attempt > 1 else None
        proof.judge(job, effects, timeline)
    proof.faults["accepted, not in the store"] = len(accepted - jobs.keys())
    proof.faults["in the store, never accepted"] = len(jobs.keys() - accepted)
    proof.faults["attempts started twice"] = effects.repeated()
    proof.faults["killed attempts not known as lost"] = len(killed - proof.lost_attempts)
    return proof


def stored(app: Forebay) -> Iterator[JobSummary]:
    after = None
    while True:
        page = app.client.search(JobQuery(), limit=1_000, after=after)
        yield from page.jobs
        if page.after is None:
            return
        after = page.after


def show(proof: Proof, accepted: int, app: Forebay) -> None:
    states = proof.states
    rows: list[tuple[str, object, str]] = [
        ("accepted", accepted, ""),
        ("completed", states[JobState.COMPLETED], f"{proof.retried} jobs after failed attempts"),
        ("dead", states[JobState.DEAD], "it failed three times"),
        ("cancelled", states[JobState.CANCELLED], "before they were due"),
        ("lost attempts", len(proof.lost_attempts), f"with the killed worker; {proof.run_again} had just ended"),
        *((name, count, "" if not count else "MUST BE 0") for name, count in proof.faults.items()),
    ]
    print()
    for name, count, remark in rows:
        print(f"  {name:<36}{count:>8,}   {remark}")
    ordinary, urgent = (median_wait(app, priority) for priority in (0, URGENT))
    print(f"\nHalf of the urgent letters waited less than {urgent:.1f} s, of the ordinary ones {ordinary:.1f} s.")


def median_wait(app: Forebay, priority: int) -> float:
    """Seconds from the acceptance of a letter to the start of its last attempt."""
    waits = [
        (job.started_at - job.created_at) / 1_000
        for job in stored(app)
        if job.task == "tour_tasks.letter" and job.priority == priority and job.started_at is not None
    ]
    return median(waits)
