"""Worker processes under fire: the second half of `make soak`.

Several `forebay worker` programs, one of them with a supervisor and two worker processes, run jobs on one
store while SIGKILL, SIGSTOP with SIGCONT, and SIGTERM hit processes among them at random. Whatever ends is
started again, as systemd would. Every job writes to a log outside of the store when it starts and when it
ends, or that it was stopped. Then log and store are compared: every accepted job is completed, none has two
finishers, no attempt was run twice, each attempt that was started is in the job's history or was stopped and
handed back; and no process, descriptor, session or lock file is left behind. Limits are set, for all jobs,
for each tenant and by a rate: no more ran at once and began in a time than they allow (`bounds.py`). Some
wait for others, and none of them began before these had finished.

With `--postgres` or `--redis` the store is on a server of its own, which is hit too: sessions are ended, it
restarts, it crashes. Whoever enqueues meanwhile asks again under the same keys.

    python -m benchmarks.storm                           5 minutes, 20,000 jobs
    python -m benchmarks.storm --postgres                the same on PostgreSQL; --redis on Redis
    python -m benchmarks.storm --seconds 20 --jobs 2000  a small one; --json FILE writes the findings
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
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Timer
from typing import Any, Final

from msgspec.structs import replace

from benchmarks import outages
from benchmarks.bounds import check_joins, check_limits, set_limits, tenant_of
from benchmarks.effects import Log, check_store, compared, make_app, wait_for_all
from benchmarks.outages import (
    Outages,
    Server,
    add_servers,
    patiently,
    server_of_our_own,
    sessions_left,
    url_of,
)
from forebay import Forebay
from forebay.app.task import Task
from forebay.domain.history import Timeline
from forebay.domain.job import JobId, NewJob, OnFailure
from forebay.domain.lifecycle import JobState
from forebay.domain.retry import MAX_RETRIES, Curve, RetryPolicy
from forebay.domain.workflow import needs_of
from forebay.errors import StoreUnavailable

ROOT: Final = Path(__file__).resolve().parents[1]
# A crew of each kind; a lease is short, so that some who are stopped lose theirs.
POSTS: Final = ((), (), ("--processes", "2"))
OPTIONS: Final = ("--threads", "4", "--drain", "5", "--beat", "5")
TASK: Final[dict[str, Any]] = {
    "lease": 2,
    "retry": RetryPolicy(max_crashes=MAX_RETRIES, curve=Curve.FIXED, base_ms=100),
    "limit_by": {"tenant": tenant_of},
}
JOIN_EVERY: Final = 50  # one job in so many waits for those that were accepted just before it
JOINED: Final = 20
LONGEST_JOB_MS: Final = 200
KINDS: Final = ("SIGKILL", "SIGSTOP", "SIGTERM")
FEED_SECONDS: Final = 0.25
END_SECONDS: Final = 60.0
MOST_DESCRIPTORS: Final = 40  # a worker has about 12, a supervisor 17
GAVE_UP: Final = 70  # a supervisor whose children die again and again: our doing
NO_STORE: Final = 3  # started while the server was away

MODULE: Final = """
from pathlib import Path

from benchmarks.effects import make_app, opened
from benchmarks.storm import TASK

folder = Path(__file__).parent
app, sleep = make_app((folder / "url").read_text(), opened(folder / "effects.log"), **TASK)
"""


@dataclass(frozen=True)
class Size:
    """How much of it."""

    seconds: float = 300.0
    jobs: int = 20_000


@dataclass
class Findings:
    """What was done, what is in the log and in the store, and what should not be."""

    accepted: int = 0
    completed: int = 0
    lost_attempts: int = 0
    joins: int = 0
    started_programs: int = 0
    hits: dict[str, int] = field(default_factory=dict)
    refusals: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


# ------------------------------------------------------------------ the processes


class Post:
    """A place for one worker program; when that has ended, a new one takes it."""

    def __init__(self, folder: Path, number: int, options: tuple[str, ...]) -> None:
        self._folder = folder
        self._command = [sys.executable, "-m", "forebay", "worker", "jobs:app", *OPTIONS, *options]
        self._log = folder / f"log-{number}.txt"
        self.is_supervised = bool(options)
        self.started = 0
        self.popen = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.started += 1
        # What the machine's owner has set must not steer this.
        plain = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY")}
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**plain, "PYTHONPATH": str(ROOT)},
            )

    def man(self, allowed: frozenset[int] = frozenset()) -> str | None:
        """Start again what has ended; what is wrong with how it ended."""
        status = self.popen.poll()
        if status is None:
            return None
        self.popen = self._start()
        if status in {-signal.SIGKILL, *self.in_order(), *allowed}:
            return None
        return f"a worker program ended with {status}: see its log\n{self.tail()}"

    def in_order(self) -> set[int]:
        """With which status it may end that was not killed."""
        # Who is hit before it has taken over its signals dies of the first one.
        return {0, -signal.SIGTERM, *((GAVE_UP,) if self.is_supervised else ())}

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-2_000:]

    def processes(self) -> list[int]:
        """The program and its children."""
        return [self.popen.pid, *(pid for pid in living(self._folder) if parent(pid) == self.popen.pid)]


def living(folder: Path) -> list[int]:
    """Processes that work in this folder, whoever has started them."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and (entry / "cwd").resolve() == folder and not is_zombie(entry):
                found.append(int(entry.name))
    return found


def is_zombie(entry: Path) -> bool:
    return (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"


def parent(pid: int) -> int | None:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


def send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


@contextmanager
def manned(folder: Path) -> Iterator[list[Post]]:
    """All posts; no process of them outlives the block."""
    posts = [Post(folder, number, options) for number, options in enumerate(POSTS)]
    try:
        yield posts
    finally:
        for pid in living(folder):
            send(pid, signal.SIGKILL)
        for post in posts:
            post.popen.wait()


# ------------------------------------------------------------------ the storm


def allowed_with(server: Server | None) -> frozenset[int]:
    """With which status a program may end because of its store."""
    return frozenset() if server is None else frozenset({NO_STORE})


def manned_again(posts: list[Post], server: Server | None) -> list[str]:
    """Start again what has ended; what is wrong with how it ended."""
    return [problem for post in posts if (problem := post.man(allowed_with(server)))]


class Storm:
    """Hits processes and the server, and lets those that were stopped go on after a while."""

    def __init__(self, dice: random.Random, server: Server | None) -> None:
        self._dice = dice
        self._outages = None if server is None else Outages(server, dice)
        # Workers come first: while a server is away there is little else to hit.
        self._kinds = KINDS if server is None else (*KINDS, *KINDS, *outages.KINDS)
        self._bag: list[str] = []
        self._stopped: list[tuple[Timer, int]] = []
        self._next = time.monotonic()
        self._kinds_played: set[str] = set()
        self.hits: Counter[str] = Counter()

    def blow(self, posts: list[Post]) -> None:
        """Do what is due."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._dice.uniform(0.2, 2.0)
            self._hit(self._dice.choice(posts))
        if self._outages is not None:
            self._outages.look()

    def _hit(self, post: Post) -> None:
        if not self._bag:  # each kind comes as often as the others, also in a short run
            self._bag = self._dice.sample(self._kinds, len(self._kinds))
        kind = self._bag.pop()
        self._kinds_played.add(kind)
        if kind in KINDS:
            self._hit_process(post, signal.Signals[kind])
        elif self._outages is not None:
            self.hits[f"{kind} server"] += 1
            self._outages.strike(kind)

    def _hit_process(self, post: Post, number: signal.Signals) -> None:
        target = self._dice.choice(post.processes())
        kind = "program" if target == post.popen.pid else "child"
        self.hits[f"{number.name} {kind}"] += 1
        send(target, number)
        if number is signal.SIGSTOP:
            self._let_go_on(target)

    def _let_go_on(self, pid: int) -> None:
        # On a thread of its own: who is stopped may hold the store's lock, and we may be waiting for that.
        timer = Timer(self._dice.uniform(0.1, 6.0), send, (pid, signal.SIGCONT))
        timer.daemon = True
        timer.start()
        self._stopped.append((timer, pid))

    @property
    def is_whole(self) -> bool:
        """Each kind of hit was played. A server that is long away can keep us from it for a while."""
        return self._kinds_played >= set(self._kinds)

    def calm(self) -> None:
        """Nobody stays stopped, and the server is there."""
        if self._outages is not None:
            self._outages.look(is_over=True)
        for timer, pid in self._stopped:
            if timer.is_alive():
                timer.cancel()
                send(pid, signal.SIGCONT)


class Feed:
    """Enqueues evenly over the time. What was not accepted, or may have been, is asked for again under the
    same keys: so nothing is enqueued twice, and everything that was accepted is known."""

    def __init__(self, app: Forebay, task: Task[[int], int], size: Size, dice: random.Random) -> None:
        self._app = app
        self._task = task
        self._size = size
        self._dice = dice
        self._next = 0.0
        self._asked: list[NewJob] = []
        self.ids: list[JobId] = []
        self.joins: dict[JobId, list[JobId]] = {}
        self.refusals = 0

    def give(self, lasts: float) -> None:
        """What is due after so many seconds."""
        if lasts < self._next:
            return
        self._next += FEED_SECONDS
        # Until the end there is always something to do, and everything is there when it comes.
        due = min(self._size.jobs, round(self._size.jobs * (lasts + FEED_SECONDS) / self._size.seconds))
        known = len(self.ids) + len(self._asked)
        self._asked += [self._job(number) for number in range(known, due)]
        try:
            ids = [handle.id for handle in self._app.enqueue_many(self._asked)] if self._asked else []
            for job_id, job in zip(ids, self._asked, strict=True):
                if job.depends_on:
                    self.joins[job_id] = [JobId(str(need.parent)) for need in job.depends_on]
            self.ids += ids
            self._asked = []
        except StoreUnavailable:
            self.refusals += 1

    def _job(self, number: int) -> NewJob:
        job = replace(self._task.job(self._dice.randint(1, LONGEST_JOB_MS)), once_key=f"feed {number}")
        is_join = number % JOIN_EVERY == 0
        return replace(job, depends_on=needs_of(self.ids[-JOINED:], OnFailure.CANCEL)) if is_join else job


def play(
    app: Forebay,
    task: Task[[int], int],
    posts: list[Post],
    size: Size,
    findings: Findings,
    server: Server | None = None,
) -> Feed:
    """Feed and hit for as long as it lasts, and until every kind of hit was played and a program was started
    again; what was accepted."""
    dice = random.Random(1)
    storm, feed = Storm(dice, server), Feed(app, task, size, dice)
    began = time.monotonic()
    is_blowing = True
    while is_blowing or len(feed.ids) < size.jobs:
        lasts = time.monotonic() - began
        feed.give(lasts)
        is_blowing = lasts < size.seconds or not storm.is_whole or all(post.started == 1 for post in posts)
        if is_blowing:
            storm.blow(posts)
        else:
            storm.calm()
        findings.problems += manned_again(posts, server)
        time.sleep(0.02)
    storm.calm()
    findings.hits = dict(sorted(storm.hits.items()))
    findings.refusals = feed.refusals
    return feed


# ------------------------------------------------------------------ the run


def run(folder: Path, size: Size, url: str | None = None, server: Server | None = None) -> Findings:
    """Enqueue, hit, wait, compare. A server is hit too; an address alone is only used."""
    findings, began = Findings(), time.monotonic()
    descriptors = len(os.listdir("/proc/self/fd"))
    url = url or (url_of(server) if server else f"sqlite:///{folder}/jobs.db")
    file = folder / "effects.log"
    file.touch()
    (folder / "url").write_text(url)
    (folder / "jobs.py").write_text(MODULE)
    app, task = make_app(url, -1, **TASK)
    with app:
        set_limits(app)
        with manned(folder) as posts:
            feed = play(app, task, posts, size, findings, server)
            patiently(app.counts)  # what is left of a connection is found out here
            # Who was started while the server was away ends by itself, also when it has just come back.
            wait_for_all(app, feed.ids, lambda: findings.problems.extend(manned_again(posts, server)))
            findings.problems += crowded(posts)
            findings.problems += ended_in_order(folder, posts, server)
            findings.started_programs = sum(post.started for post in posts)
        compare(app, feed, file, findings)
        patiently(app.sweep)  # it writes, over a connection that may not have been used since the last hit
    if server is not None and (left := sessions_left(server)):
        findings.problems.append(f"{left} sessions stay on the server")
    findings.problems += left_behind(folder, descriptors)
    findings.seconds = round(time.monotonic() - began, 1)
    return findings


def crowded(posts: list[Post]) -> Iterator[str]:
    """Processes that hold more descriptors than they can need, however many others have died around them."""
    for pid in [pid for post in posts for pid in post.processes()]:
        with suppress(OSError):
            if (found := len(os.listdir(f"/proc/{pid}/fd"))) > MOST_DESCRIPTORS:
                yield f"process {pid} has {found} open descriptors"


def ended_in_order(folder: Path, posts: list[Post], server: Server | None) -> Iterator[str]:
    """Ask everybody to stop; what is wrong with how they do it."""
    for post in posts:
        send(post.popen.pid, signal.SIGTERM)
    ends = time.monotonic() + END_SECONDS
    for post in posts:
        try:
            status = post.popen.wait(max(0.0, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            yield f"a worker program did not stop within {END_SECONDS:g} s\n{post.tail()}"
            continue
        if status not in {*post.in_order(), *allowed_with(server)}:
            yield f"a worker program that was asked to stop ended with {status}\n{post.tail()}"
    while (left := living(folder)) and time.monotonic() < ends:
        time.sleep(0.05)
    if left:
        yield f"processes {left} outlive their programs"


def compare(app: Forebay, feed: Feed, file: Path, findings: Findings) -> None:
    """Hold the log against the store."""
    log, timelines = Log(file), list[Timeline]()
    log.look()
    findings.accepted, findings.joins = len(set(feed.ids)), len(feed.joins)
    for timeline, problems in compared(app, feed.ids, log):
        timelines.append(timeline)
        findings.problems += problems
        findings.completed += timeline.job.state is JobState.COMPLETED
        findings.lost_attempts += len(timeline.attempts)
    findings.problems += check_limits(timelines, log, 1_000 * TASK["lease"])
    findings.problems += check_joins(feed.joins, timelines, log)
    findings.problems += check_store(app, log)


def left_behind(folder: Path, descriptors: int) -> Iterator[str]:
    """What should be gone when everybody has left."""
    now = len(os.listdir("/proc/self/fd"))
    if now > descriptors:
        yield f"there were {descriptors} open descriptors, and there are {now}"
    locks = [str(file.relative_to(folder)) for file in folder.rglob("*.lock*")]
    if locks:
        yield f"lock files stay: {', '.join(sorted(locks)[:5])}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=Size.seconds, help="how long it blows (300)")
    parser.add_argument("--jobs", type=int, default=Size.jobs, help="how many jobs flow meanwhile (20000)")
    stores = parser.add_mutually_exclusive_group()
    stores.add_argument("--url", help="another store than a new SQLite file")
    add_servers(stores)
    parser.add_argument("--json", type=Path, help="also write the findings to this file")
    chosen = parser.parse_args()
    own = server_of_our_own(chosen.server)
    with tempfile.TemporaryDirectory(prefix="forebay-storm-") as folder, own as server:
        size = Size(seconds=chosen.seconds, jobs=chosen.jobs)
        try:
            findings = run(Path(folder).resolve(), size, chosen.url, server)
        except Exception:  # the findings are written in any case, and say what has ended the run
            findings = Findings(problems=[traceback.format_exc()])
    for name, value in asdict(findings).items():
        print(f"{name:16} {value}")
    if chosen.json:
        chosen.json.write_text(json.dumps(asdict(findings)))
    return 1 if findings.problems else 0


if __name__ == "__main__":
    sys.exit(main())
