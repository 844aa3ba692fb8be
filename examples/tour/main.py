"""Tour of `make demo`: thousands of jobs, two workers, one of them killed, and a proof, in half a minute.

The jobs are in two queues, with priorities and delays. Some fail and are retried, one becomes a dead
letter, a few are cancelled. One worker gets SIGKILL while it runs jobs, and another replaces it. The table
at the end compares two independent sources: the store, and the file in which the tasks record their
effects. The exit code is 1 if a job was lost or finished twice.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Final

from forebay import Forebay
from forebay.domain.job import JobId, NewJob, QueueName
from forebay.domain.job_history import Attempt
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.job_views import JobSummary
from forebay.domain.queue_counts import Counts
from forebay.domain.settlement import OutcomeKind

HERE: Final = Path(__file__).resolve().parent
LONGEST_SECONDS: Final = 55.0
LINE_EVERY_SECONDS: Final = 3.0
AT_ONCE: Final = 500
UNWANTED: Final = 10
URGENT: Final = 50

Process = subprocess.Popen[bytes]
Run = tuple[str, int]  # one attempt of one job


# Accept


def accept(app: Forebay, tasks: ModuleType, size: int) -> set[JobId]:
    """Enqueue all jobs; return the ids of the accepted ones."""
    jobs = [*plan(tasks, size), tasks.hopeless.job()]
    handles = []
    for start in range(0, len(jobs), AT_ONCE):
        handles += app.enqueue_many(jobs[start : start + AT_ONCE])
    in_an_hour = tasks.letter.using(delay=3_600)
    unwanted = app.enqueue_many([in_an_hour.job("unwanted", ms=1) for _ in range(UNWANTED)])
    for handle in unwanted:
        handle.cancel("it is not needed any more")
    return {handle.id for handle in handles + unwanted}


def plan(tasks: ModuleType, size: int) -> Iterator[NewJob]:
    """Return the jobs in the order in which they are enqueued; urgent letters come last."""
    dice = random.Random(size)
    share = size // 20
    longest_delay = min(8.0, 1 + size / 500)
    late, urgent = tasks.letter.using, tasks.letter.using(priority=URGENT)
    for number in range(size - 11 * share):
        yield tasks.letter.job(f"reader {number}", ms=dice.randrange(10, 60))
    for number in range(5 * share):
        yield tasks.report.job(number, ms=dice.randrange(20, 90))
    for _ in range(2 * share):
        yield tasks.ping.job(ms=dice.randrange(10, 60))
    for _ in range(share):
        yield tasks.flaky.job(ms=dice.randrange(5, 20))
    for _ in range(share):
        yield late(delay=dice.uniform(1, longest_delay)).job("a late reader", ms=dice.randrange(5, 20))
    for number in range(2 * share):
        yield urgent.job(f"an impatient reader {number}", ms=dice.randrange(10, 60))


# Work


class Crew:
    """Worker processes of the tour. None of them outlives it."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._output = log.open("wb")
        self._all: list[Process] = []

    def hire(self) -> Process:
        command = [sys.executable, "-m", "forebay", "worker", "tour_tasks:app", "--threads", "4"]
        one = subprocess.Popen(command, cwd=HERE, stdout=self._output, stderr=self._output)  # noqa: S603 - ours
        self._all.append(one)
        return one

    def dismiss(self, one: Process) -> None:
        one.kill()
        one.wait()
        self._all.remove(one)

    def check(self) -> None:
        """End the tour if a worker has ended by itself."""
        for one in self._all:
            if one.poll() is not None:
                raise SystemExit(f"worker {one.pid} ended by itself:\n{self.tail()}")

    def stop(self) -> list[int]:
        """Stop all workers; return their exit codes."""
        for one in self._all:
            one.terminate()
        return [one.wait(timeout=30) for one in self._all]

    def close(self) -> None:
        for one in self._all:
            one.kill()
            one.wait()
        self._output.close()

    def tail(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-4_000:]


def kill_at_work(crew: Crew, worker: Process, file: Path) -> set[Run]:
    """Kill a worker with running jobs; return these jobs."""
    while True:
        worker.send_signal(signal.SIGSTOP)  # it must not end a job between the check and the kill
        # The signal is only sent; on another core a job may still end, and be settled, before it arrives.
        os.waitid(os.P_PID, worker.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        running = Effects(file).unended(worker.pid)
        if running:
            crew.dismiss(worker)
            return running
        worker.send_signal(signal.SIGCONT)
        time.sleep(0.01)


class View:
    """Progress line of the queues: rewritten in place on a terminal, printed now and then elsewhere."""

    def __init__(self, app: Forebay, accepted: int) -> None:
        self._app = app
        self._accepted = accepted
        self._is_live = sys.stdout.isatty()
        self._print_at = 0.0
        self.final = 0

    def look(self) -> None:
        counts = self._app.client.counts()
        self.final = sum(one.total - one.live for one in counts.values())
        line = f"{self.final:>6,}/{self._accepted:,} final | {_summary(counts)}"
        if self._is_live:
            print(f"\r{self._cut(line)}", end="", flush=True)
        elif time.monotonic() >= self._print_at:
            self._print_at = time.monotonic() + LINE_EVERY_SECONDS
            print(line, flush=True)

    def print_line(self, text: str) -> None:
        print(f"\r{self._cut(text)}" if self._is_live else text, flush=True)

    def _cut(self, text: str) -> str:
        # As wide as the terminal: a longer line cannot be rewritten, a shorter one leaves the end of the
        # old one.
        columns = shutil.get_terminal_size().columns - 1
        return f"{text:<{columns}.{columns}}"


def _summary(counts: dict[QueueName, Counts]) -> str:
    pending = " ".join(f"{name} {one.pending:,}" for name, one in sorted(counts.items()))
    running = sum(one.running for one in counts.values())
    later = sum(one.scheduled + one.retrying for one in counts.values())
    return f"{pending} pending | {running} running | {later} later"


def watch(view: View, crew: Crew, is_over: Callable[[], bool], deadline: float) -> None:
    """Poll the queues until a condition holds, or until a timeout."""
    while True:
        view.look()
        if is_over() or time.monotonic() > deadline:
            return
        crew.check()
        time.sleep(0.1)


def work(app: Forebay, crew: Crew, file: Path, accepted: int, deadline: float) -> set[Run]:
    """Run all jobs and kill one worker on the way; return the jobs that it was running."""
    view = View(app, accepted)
    first, second = crew.hire(), crew.hire()
    view.print_line(f"two workers begin: {first.pid} and {second.pid}")
    watch(view, crew, lambda: view.final > accepted * 0.4, deadline)
    killed = kill_at_work(crew, first, file)
    view.print_line(f"worker {first.pid} gets SIGKILL while it runs {len(killed)} jobs")
    view.print_line(f"worker {crew.hire().pid} takes its place")
    watch(view, crew, lambda: view.final >= accepted, deadline)
    view.print_line(f"{view.final:,} of {accepted:,} jobs are final")
    return killed


# Prove


class Effects:
    """Effects that the tasks recorded: the lines of each attempt of each job, in order."""

    def __init__(self, file: Path) -> None:
        self._jobs: defaultdict[str, dict[int, list[str]]] = defaultdict(dict)
        self._unended: dict[Run, int] = {}
        for line in file.read_text(encoding="ascii").splitlines():
            what, job_id, attempt, pid = line.split()
            self._jobs[job_id].setdefault(int(attempt), []).append(what)
            self._unended[job_id, int(attempt)] = int(pid)
            if what != "start":
                del self._unended[job_id, int(attempt)]

    def unended(self, pid: int) -> set[Run]:
        """Return the attempts that this process has started and not ended."""
        return {run for run, starter in self._unended.items() if starter == pid}

    def of(self, job_id: str) -> dict[int, list[str]]:
        """Return the lines of a job by attempt."""
        return self._jobs.get(job_id, {})


@dataclass
class Proof:
    """Result of the proof. Every count in `faults` must be zero."""

    states: Counter[JobState] = field(default_factory=Counter)
    retried: int = 0
    lost: set[Run] = field(default_factory=set)
    run_again: int = 0
    waits: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    faults: Counter[str] = field(default_factory=Counter)

    def judge(self, job: JobSummary, bad: tuple[Attempt, ...], effects: dict[int, list[str]]) -> None:
        """Check one job: exactly one attempt finished it, and its effects are of the same attempt."""
        lost = {one.attempt for one in bad if one.outcome is OutcomeKind.LOST}
        ends = [attempt for attempt, lines in effects.items() if "end" in lines]
        # A worker that dies between the end of a task and the settlement leaves an effect, and the job runs
        # again: delivery is at least once. The lost attempt cannot finish the job.
        finishers = [attempt for attempt in ends if attempt not in lost]
        self.states[job.state] += 1
        self.retried += any(one.outcome is OutcomeKind.FAILED for one in bad)
        self.lost |= {(job.id, attempt) for attempt in lost}
        self.run_again += len(ends) > len(finishers)
        self.faults["attempts started twice"] += sum(lines.count("start") > 1 for lines in effects.values())
        self.faults["jobs finished twice"] += len(finishers) > 1
        self.faults["jobs without a finisher"] += not agree(job, finishers, effects)
        if job.task == "tour_tasks.letter" and job.started_at is not None:
            self.waits[job.priority].append(job.started_at - job.created_at)


def agree(job: JobSummary, finishers: list[int], effects: dict[int, list[str]]) -> bool:
    """Return whether store and effects agree on the end of a job, by the same attempt."""
    match job.state:
        case JobState.COMPLETED:
            return job.attempt in finishers
        case JobState.DEAD:
            return not finishers and effects.get(job.attempt) == ["start", "fail"]
        case JobState.CANCELLED:
            return not effects
        case _:
            return False


def prove(app: Forebay, accepted: set[JobId], effects: Effects, killed: set[Run]) -> Proof:
    """Compare the accepted jobs, the store and the effects of the tasks."""
    proof = Proof()
    jobs = {job.id: job for job in stored(app)}
    for job in jobs.values():
        timeline = app.client.history(job.id) if job.attempt > 1 else None
        proof.judge(job, timeline.attempts if timeline else (), effects.of(job.id))
    proof.faults["jobs accepted and not in the store"] = len(accepted - jobs.keys())
    proof.faults["jobs in the store and not accepted"] = len(jobs.keys() - accepted)
    proof.faults["killed attempts not known as lost"] = len(killed - proof.lost)
    return proof


def stored(app: Forebay) -> Iterator[JobSummary]:
    page = app.client.search(JobQuery(), limit=1_000)
    yield from page.jobs
    while page.after is not None:
        page = app.client.search(JobQuery(), limit=1_000, after=page.after)
        yield from page.jobs


def show(proof: Proof, accepted: int) -> None:
    states = proof.states
    rows = [
        ("accepted", accepted, ""),
        ("completed", states[JobState.COMPLETED], f"{proof.retried} of all jobs had failed attempts before"),
        ("dead", states[JobState.DEAD], "failed three times"),
        ("cancelled", states[JobState.CANCELLED], "before they were due"),
        ("attempts lost with the killed worker", len(proof.lost), ""),
        ("  whose task had just ended", proof.run_again, "run again: delivery is at least once"),
        *((name, count, "must be 0" if count else "") for name, count in sorted(proof.faults.items())),
    ]
    print()
    for name, count, remark in rows:
        print(f"  {name:<38}{count:>7,}   {remark}".rstrip())
    urgent, ordinary = (median(proof.waits[priority]) / 1_000 for priority in (URGENT, 0))
    print(f"\nUrgent letters, enqueued last, waited {urgent:.1f} s (median), ordinary ones {ordinary:.1f} s.")


# The tour


def tour(size: int, folder: Path) -> bool:
    """Run the tour; return whether the proof holds."""
    file = folder / "effects.txt"
    os.environ["TOUR_STORE"] = f"sqlite:///{folder}/jobs.db"
    os.environ["TOUR_EFFECTS"] = str(file)
    tasks = import_module("tour_tasks")  # it reads the two, here and in the workers
    with ExitStack() as stack:
        app: Forebay = stack.enter_context(tasks.app)
        deadline = time.monotonic() + LONGEST_SECONDS
        accepted = accept(app, tasks, size)
        print(f"{len(accepted):,} jobs accepted on {', '.join(app.queues())}, in {folder}")
        crew = stack.enter_context(closing(Crew(folder / "workers.log")))
        killed = work(app, crew, file, len(accepted), deadline)
        codes = crew.stop()
        proof = prove(app, accepted, Effects(file), killed)
        show(proof, len(accepted))
        holds = not any(proof.faults.values()) and not any(codes)
        print("Every accepted job has exactly one finisher." if holds else f"THE PROOF FAILS\n{crew.tail()}")
    return holds


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=4_000, help="how many jobs, at least 200 (4000)")
    size = max(200, parser.parse_args().jobs)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the workers are ended on the way out
    with tempfile.TemporaryDirectory(prefix="forebay-tour-") as folder:
        return 0 if tour(size, Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
