"""How soon a job starts, and what a worker process costs while it waits: `make bench`.

Pick-up: one process enqueues a job every 20 ms, a worker in another process runs it, and the time from the
enqueue call (its begin, and its return) to the first line of the task is taken. Raw is a bare table in the
same folder and a datagram that wakes the other process. Cold start is the time from starting a worker process
to the first line of its first job, and memory is what that process holds when it has had nothing to do for a
while. The longest wait is that of a short job while long ones hold all slots of two workers but one.
"""

from __future__ import annotations

import atexit
import os
import random
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from threading import Event
from typing import Final, NamedTuple, TypeAlias

from benchmarks.measurements import ARGUMENT, Measurement, at_most, machine, parser, show, write
from benchmarks.store import BARE_INSERT, BARE_TABLE
from forebay import Forebay

EVERY_SECONDS: Final = 0.02
WARM: Final = 20
WARM_NUMBER: Final = -1
DEADLINE_SECONDS: Final = 60.0
IDLE_SECONDS: Final = 3.0
SHORT, LONG = 133, 7
PICK_UP_GOALS: Final = {50: 1.2, 99: 5.0}
RAW_CLAIM: Final = """
update jobs set state = 1
where id = (select id from jobs where state = 0 and queue = 'd' order by priority, run_at, id limit 1)
returning payload
"""
# A program as small as one can be, so that the measurements are the worker's.
SMALLEST_APP: Final = """
import time
from pathlib import Path

from forebay import Forebay

app = Forebay("sqlite:///jobs.db")


@app.task
def first() -> None:
    now = time.time_ns()
    Path("started.tmp").write_text(str(now))
    Path("started.tmp").rename("started")
"""

now_ns: Final = time.time_ns  # noqa: TID251 - two processes compare their times
Starts: TypeAlias = list[tuple[int, int]]  # the number of each job and when it started


class Sent(NamedTuple):
    """When the enqueue call of a job began and when it had returned."""

    began: int
    returned: int


class Delays(NamedTuple):
    """Milliseconds from a point of the enqueue call to the start, sorted."""

    from_begin: list[float]
    from_return: list[float]


# Pick-up


def pick_up_here(url: str, jobs: int) -> Starts:
    """In a process of its own: run so many jobs; answers when each started."""
    starts: Starts = []
    is_over = Event()

    def probe(number: int, argument: dict[str, object]) -> None:
        starts.append((number, now_ns()))
        if len(starts) == jobs:
            is_over.set()

    with Forebay(url) as app:
        app.task(name="bench.probe")(probe)
        with app.run_worker(threads=4):
            is_over.wait(DEADLINE_SECONDS)
    return starts


def ours(where: Path, jobs: int) -> Delays:
    url = f"sqlite:///{where}/jobs.db"

    def probe(number: int, argument: dict[str, object]) -> None:
        """Only the name counts here: it runs in the other process."""

    with in_another_process() as process, Forebay(url) as app:
        task = app.task(name="bench.probe")(probe)
        starts = process.submit(pick_up_here, url, WARM + jobs)
        for _ in range(WARM):
            task.enqueue(WARM_NUMBER, dict(ARGUMENT)).wait(DEADLINE_SECONDS)
        sent = paced(jobs, lambda number: task.enqueue(number, dict(ARGUMENT)))
        return delays(sent, starts.result())


def raw_here(where: Path, jobs: int) -> Starts:
    """In a process of its own: wake at each datagram, claim, note the time."""
    starts: Starts = []
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as wakeups, closing(bare(where)) as table:
        table.execute("pragma synchronous = normal")  # a claim that is lost in a crash is made again
        wakeups.bind(str(where / "wakeups"))
        while len(starts) < jobs:
            wakeups.recv(16)
            for (number,) in table.execute(RAW_CLAIM).fetchall():
                starts.append((int(number), now_ns()))
    return starts


def raw(where: Path, jobs: int) -> Delays:
    with closing(bare(where)) as table, in_another_process() as process:
        table.executescript(BARE_TABLE)
        starts = process.submit(raw_here, where, jobs + WARM)
        wait_for(where / "wakeups")
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as wakeups:

            def send(number: int) -> None:
                table.execute(BARE_INSERT, (1.0, str(number)))
                wakeups.sendto(b"", str(where / "wakeups"))

            paced(WARM, lambda _: send(WARM_NUMBER))
            sent = paced(jobs, send)
            return delays(sent, starts.result())


def bare(where: Path) -> sqlite3.Connection:
    table = sqlite3.connect(where / "bare.db", isolation_level=None, timeout=30)
    table.execute("pragma journal_mode = wal")
    table.execute("pragma synchronous = full")
    return table


def paced(jobs: int, send: Callable[[int], object]) -> list[Sent]:
    """Send one every 20 ms; answers when each was sent."""
    sent = []
    next_at = time.monotonic()
    for number in range(jobs):
        began = now_ns()
        send(number)
        sent.append(Sent(began, now_ns()))
        next_at += EVERY_SECONDS
        time.sleep(max(0.001, next_at - time.monotonic()))
    return sent


def delays(sent: Sequence[Sent], starts: Starts) -> Delays:
    started = dict(starts)
    pairs = [(one, started[number]) for number, one in enumerate(sent)]
    return Delays(
        sorted((start - one.began) / 1e6 for one, start in pairs),
        sorted((start - one.returned) / 1e6 for one, start in pairs),
    )


def percentile(ordered: Sequence[float], percent: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def measure_pick_up(rounds: int, seconds: float) -> list[Measurement]:
    jobs = round(seconds / EVERY_SECONDS)
    found: list[tuple[Delays, Delays]] = []
    for _ in range(rounds):
        with folder() as where:
            found.append((ours(where, jobs), raw(where, jobs)))
    begins = [(mine.from_begin, bare.from_begin) for mine, bare in found]
    returns = [(mine.from_return, bare.from_return) for mine, bare in found]
    return [*pick_up_measurements("from the call", begins), *pick_up_measurements("from its return", returns)]


def pick_up_measurements(
    name: str, rounds: Sequence[tuple[list[float], list[float]]], wanted: Mapping[int, float] = PICK_UP_GOALS
) -> Iterator[Measurement]:
    for percent in (50, 95, 99):
        pairs = [(percentile(mine, percent), percentile(bare, percent)) for mine, bare in rounds]
        value, against = (median(side) for side in zip(*pairs, strict=True))
        yield Measurement(
            measure=f"pick-up p{percent}, {name}",
            ours=value,
            unit=" ms",
            against=f"{against:.2f} ms raw",
            ratio=value / against,
            goals=(at_most(value, wanted[percent], " ms"),) if percent in wanted else (),
            rounds=tuple(mine for mine, _ in pairs),
            against_rounds=tuple(bare for _, bare in pairs),
        )


# A worker process


def measure_process(rounds: int) -> list[Measurement]:
    found = [(*one_process(), bare_interpreter()) for _ in range(rounds)]
    cold, memory, bare = zip(*found, strict=True)
    return [
        Measurement(
            measure="cold start to the first job",
            ours=median(cold),
            unit=" s",
            against=f"{median(bare):.3f} s bare Python",
            goals=(at_most(median(cold), 0.25, " s"),),
            rounds=cold,
            against_rounds=bare,
        ),
        Measurement(
            measure="resident memory, idle",
            ours=median(memory),
            unit=" MB",
            goals=(at_most(median(memory), 35, " MB"),),
            rounds=memory,
        ),
    ]


def one_process() -> tuple[float, float]:
    """Seconds from the start of a worker process to its first job, and its megabytes some time later."""
    with folder() as where:
        (where / "smallest.py").write_text(SMALLEST_APP, encoding="utf-8")
        with Forebay(f"sqlite:///{where}/jobs.db") as app:
            app.task(name="smallest.first")(lambda: None).enqueue()
        environment = as_installed()
        began = now_ns()
        command = [sys.executable, "-m", "forebay", "worker", "smallest:app"]
        with (
            (where / "log").open("wb") as log,
            subprocess.Popen(command, cwd=where, stderr=log, env=environment) as worker,
        ):
            try:
                wait_for(where / "started", lambda: check_lives(worker, where / "log"))
                started = int((where / "started").read_text(encoding="ascii"))
                time.sleep(IDLE_SECONDS)
                memory = resident_mb(worker.pid)
                check_lives(worker, where / "log")  # a dead process would need no memory at all
                return (started - began) / 1e9, memory
            finally:
                worker.terminate()
                worker.wait(DEADLINE_SECONDS)


def check_lives(worker: subprocess.Popen[bytes], log: Path) -> None:
    """End the benchmark, with the worker's last words, if it has ended by itself."""
    if worker.poll() is not None:
        words = log.read_text(encoding="utf-8", errors="replace")
        raise SystemExit(f"the worker ended by itself with {worker.returncode}\n{words}")


def resident_mb(pid: int) -> float:
    answer = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(answer.stdout) / 1_024


def bare_interpreter() -> float:
    return interpreter("pass")


def interpreter(program: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True, env=as_installed())
    return time.perf_counter() - began


@cache
def as_installed() -> dict[str, str]:
    """An environment in which modules are compiled once, as an installation does; ours may forbid it."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    compiled = tempfile.mkdtemp(prefix="forebay-compiled-")
    atexit.register(shutil.rmtree, compiled, ignore_errors=True)
    env["PYTHONPYCACHEPREFIX"] = compiled
    everything = [sys.executable, "-m", "forebay", "worker", "--help"]
    subprocess.run(everything, check=True, env=env, stdout=subprocess.DEVNULL)
    return env


def measure_import(rounds: int) -> Measurement:
    pairs = [(interpreter("import forebay"), bare_interpreter()) for _ in range(5 * rounds)]
    above = median(ours - bare for ours, bare in pairs) * 1_000
    return Measurement(
        measure="import forebay, above a bare interpreter",
        ours=above,
        unit=" ms",
        against=f"{median(bare for _, bare in pairs) * 1_000:.0f} ms bare Python",
        goals=(at_most(above, 60, " ms"),),
        rounds=tuple(ours * 1_000 for ours, _ in pairs),
        against_rounds=tuple(bare * 1_000 for _, bare in pairs),
    )


# Short jobs among long ones


def measure_waits(rounds: int) -> Measurement:
    worst = [longest_wait(seed) for seed in range(rounds)]
    return Measurement(
        measure="longest wait of a 1 ms job, 5 % long ones",
        ours=max(worst),
        unit=" s",
        goals=(at_most(max(worst), 2, " s"),),
        rounds=tuple(worst),
    )


def longest_wait(seed: int) -> float:
    """Two workers of four threads; seven long jobs that outlast all others take seven of the eight slots."""
    over = Event()
    kinds = [True] * LONG + [False] * SHORT
    random.Random(seed).shuffle(kinds)

    def mixed(is_long: bool) -> None:
        over.wait(DEADLINE_SECONDS if is_long else 0.001)

    with folder() as where, Forebay(f"sqlite:///{where}/jobs.db") as app, ExitStack() as workers:
        task = app.task(name="bench.mixed")(mixed)
        for _ in range(2):
            workers.enter_context(app.run_worker(threads=4))
        workers.callback(over.set)
        # Both know the task as a short one, and claim it in great numbers.
        for job in app.enqueue_many([task.job(False) for _ in range(600)]):
            job.wait(DEADLINE_SECONDS)
        jobs = zip(app.enqueue_many([task.job(is_long) for is_long in kinds]), kinds, strict=True)
        ended = [job.wait(DEADLINE_SECONDS) for job, is_long in jobs if not is_long]
    return max((job.started_at or 0) - job.ready_at for job in ended) / 1_000


# Shared


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as name:
        yield Path(name)


@contextmanager
def in_another_process() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        yield process


def wait_for(file: Path, check: Callable[[], None] = lambda: None) -> None:
    ends = time.monotonic() + DEADLINE_SECONDS
    while not file.exists():
        check()
        if time.monotonic() > ends:
            raise SystemExit(f"{file} did not appear in {DEADLINE_SECONDS:.0f} s")
        time.sleep(0.002)


def main() -> None:
    chosen = parser(__doc__).parse_args()
    rounds, seconds = (2, 1.0) if chosen.quick else (chosen.rounds, 5.0)
    before = machine()
    measurements = measure_pick_up(rounds, seconds) + measure_process(rounds)
    measurements += [measure_import(rounds), measure_waits(rounds)]
    show("Latency", measurements)
    write(chosen.json, before, measurements)


if __name__ == "__main__":
    main()
