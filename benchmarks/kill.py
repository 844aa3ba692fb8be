"""Workers are killed in the middle of their jobs, and nothing is lost: the acceptance run of the worker.

Four workers, each a process of its own, run ten thousand jobs of 1 to 50 ms on one store. Every job
writes to a log outside of the store when it starts and when it ends. Two of the workers are killed with
SIGKILL while that log shows that they have started and not ended at least three jobs each. Then log and
store are compared: every accepted job is completed, none has two finishers, no attempt was run twice, and
each attempt that was started is in the job's history.

With `--postgres` or `--redis` the store is on a server of its own. After the workers have died, all sessions
on it are ended, it restarts, and it crashes, while the other workers go on.

    python -m benchmarks.kill                        the full size
    python -m benchmarks.kill --postgres             the same on PostgreSQL; --redis on Redis
    python -m benchmarks.kill --jobs 1500 --most 10  a small one; --json FILE writes the findings
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.effects import SECONDS, Log, Token, check_store, compared, make_app, opened, wait_for_all
from benchmarks.outages import (
    KINDS,
    Outages,
    Server,
    add_servers,
    patiently,
    server_of_our_own,
    sessions_left,
    url_of,
)
from forebay import Forebay
from forebay.domain.job import JobId
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState

OPEN_JOBS: Final = 3
FEED_SECONDS: Final = 0.5
BATCH: Final = 500
WORK: Final = "work"
# A server cannot see that a worker is dead: its leases have to end.
LEASE_SECONDS: Final = 3.0


@dataclass(frozen=True)
class Size:
    """How much of it."""

    jobs: int = 10_000
    workers: int = 4
    kills: int = 2
    threads: int = 4
    least_ms: int = 1
    most_ms: int = 50


@dataclass
class Findings:
    """What is in the log and in the store, and what should not be."""

    accepted: int = 0
    completed: int = 0
    killed: int = 0
    open_at_kill: list[int] = field(default_factory=list)
    lost_attempts: int = 0
    strikes: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


# ------------------------------------------------------------------ a worker


def work(url: str, log: str, threads: int) -> None:
    """Be a worker until the parent closes our standard input."""
    app, _ = make_app(url, opened(Path(log)), **options(url))
    with app, app.run_worker(threads=threads):
        print("ready", flush=True)
        sys.stdin.read()


def options(url: str) -> dict[str, float]:
    return {} if url.startswith("sqlite") else {"lease": LEASE_SECONDS}


@contextmanager
def started(url: str, log: Path, size: Size) -> Iterator[list[subprocess.Popen[str]]]:
    """Worker processes that are up; none of them outlives the block."""
    command = [sys.executable, "-m", "benchmarks.kill", WORK, url, str(log), str(size.threads)]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(size.workers)
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        yield workers
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


# ------------------------------------------------------------------ the kill


def kill_in_the_middle(worker: subprocess.Popen[str], log: Log, feed: Callable[[], None]) -> set[Token]:
    """Kill a worker while the log shows enough open jobs of it; they are the answer. It is fed until then.

    It is stopped for the look, so that what the log shows is still true when the kill comes.
    """
    ends = time.monotonic() + SECONDS
    feed_at = time.monotonic()
    while time.monotonic() < ends:
        if time.monotonic() >= feed_at:
            feed()
            feed_at = time.monotonic() + FEED_SECONDS
        log.look()
        if len(log.open[worker.pid]) >= OPEN_JOBS:
            worker.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, worker.pid, os.WSTOPPED | os.WNOWAIT)
            log.look()
            if len(log.open[worker.pid]) >= OPEN_JOBS:
                worker.kill()
                worker.wait()
                return set(log.open[worker.pid])
            worker.send_signal(signal.SIGCONT)
        time.sleep(0.000_5)
    raise TimeoutError("no worker had enough open jobs at once")


# ------------------------------------------------------------------ the run


def run(folder: Path, size: Size, server: Server | None = None) -> Findings:
    """Enqueue, kill, wait, compare."""
    findings = Findings()
    url, file = url_of(server) if server else f"sqlite:///{folder}/jobs.db", folder / "effects.log"
    file.touch()
    log, dice = Log(file), random.Random(1)
    app, task = make_app(url, -1, **options(url))
    began = time.monotonic()
    with app, started(url, file, size) as workers:
        ids: list[JobId] = []

        def feed() -> None:
            jobs = [task.job(dice.randint(size.least_ms, size.most_ms)) for _ in range(BATCH)]
            ids.extend(handle.id for handle in app.enqueue_many(jobs))

        cut_off = [kill_in_the_middle(worker, log, feed) for worker in workers[: size.kills]]
        while len(ids) < size.jobs:
            feed()
        findings.open_at_kill = [len(tokens) for tokens in cut_off]
        findings.killed = len(cut_off)
        if server is not None:
            findings.strikes = strike_all(server, log, dice)
            patiently(app.counts)
        wait_for_all(app, ids)
        end_in_order(workers[size.kills :], findings)
        log.look()
        compare(app, ids, log, cut_off, findings)
    if server is not None and (left := sessions_left(server)):
        findings.problems.append(f"{left} sessions stay on the server")
    findings.seconds = round(time.monotonic() - began, 1)
    return findings


def strike_all(server: Server, log: Log, dice: random.Random) -> int:
    """Let everything happen to the server once, each time after the workers have gone on; how often."""
    outages = Outages(server, dice)
    for kind in KINDS:
        outages.strike(kind)
        outages.look(is_over=True)
        log.look()
        ended, ends = log.ends.total(), time.monotonic() + SECONDS
        while log.ends.total() < ended + OPEN_JOBS and time.monotonic() < ends:
            log.look()
            time.sleep(0.01)
    return len(KINDS)


def end_in_order(workers: list[subprocess.Popen[str]], findings: Findings) -> None:
    for worker in workers:
        worker.communicate(timeout=60)  # closes its standard input
        if worker.returncode != 0:
            findings.problems.append(f"a worker that was not killed ended with {worker.returncode}")


# ------------------------------------------------------------------ the comparison


def compare(app: Forebay, ids: list[JobId], log: Log, cut_off: list[set[Token]], findings: Findings) -> None:
    """Hold the log against the store."""
    findings.accepted = len(set(ids))
    for timeline, problems in compared(app, ids, log):
        findings.problems += problems
        findings.completed += timeline.job.state is JobState.COMPLETED
        findings.lost_attempts += len(timeline.attempts)
    findings.problems += [*check_store(app, log), *check_killed(app, cut_off, log)]


def check_killed(app: Forebay, cut_off: list[set[Token]], log: Log) -> Iterator[str]:
    """What the dead had open is in the history as lost, by them, and a sweep is named."""
    for job_id, attempt in (token for tokens in cut_off for token in tokens):
        timeline = app.client.history(JobId(job_id))
        rows = {row.attempt: row for row in timeline.attempts} if timeline else {}
        if attempt not in rows or rows[attempt].worker != log.workers[job_id, attempt]:
            yield f"{job_id}: attempt {attempt} died with its worker, and no row says so"
        events = timeline.events if timeline else ()
        if not [one for one in events if one.kind is EventKind.SWEPT and one.attempt == attempt]:
            yield f"{job_id}: no sweeper is said to have swept attempt {attempt}"


def main() -> int:
    if sys.argv[1:2] == [WORK]:
        work(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, value in asdict(Size()).items():
        parser.add_argument(f"--{name.removesuffix('_ms')}", type=int, default=value, dest=name)
    add_servers(parser)
    parser.add_argument("--json", type=Path)
    chosen = vars(parser.parse_args())
    target: Path | None = chosen.pop("json")
    own = server_of_our_own(chosen.pop("server"))
    with tempfile.TemporaryDirectory(prefix="forebay-kill-") as folder, own as server:
        findings = run(Path(folder), Size(**chosen), server)
    for name, value in asdict(findings).items():
        print(f"{name:14} {value}")
    if target is not None:
        target.write_text(json.dumps(asdict(findings)))
    return 1 if findings.problems else 0


if __name__ == "__main__":
    sys.exit(main())
