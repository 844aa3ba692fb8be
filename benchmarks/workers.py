"""Workers you can trust, measured: what a second process brings, and how long things take when one dies.

Everything is done with real worker programs on a SQLite file in a folder of its own, except the claims, which
ask the store alone.

    python -m benchmarks.workers --quick
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.measurements import Measurement, at_least, at_most, machine, parser, show, write
from forebay import Forebay
from forebay.domain.job import NewJob, QueueName, WorkerId
from forebay.domain.lane import lanes_for_program
from forebay.domain.outcome import Interrupted
from forebay.domain.settlement import decide
from forebay.payload.codec import encode_call
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine

PATIENCE_SECONDS: Final = 120.0
LEASE_SECONDS: Final = 2.0
TICKS: Final = os.sysconf("SC_CLK_TCK")
MB: Final = 2**20
QUEUE: Final = QueueName("default")
BATCH: Final = 1_000
ROOM: Final = 100

MODULE: Final = """
import ctypes
import os
import time
from pathlib import Path

from forebay import Forebay, current_job

folder = Path(__file__).parent
app = Forebay((folder / "url").read_text())


def say(word: str) -> None:
    part = folder / f"{word}.part"
    part.write_text(f"{os.getpid()} {time.monotonic()}")
    part.rename(folder / word)


@app.task(name="work", isolated=True)
def work() -> None:
    ends = time.process_time() + 0.005
    while time.process_time() < ends:
        pass


@app.task(name="deaf", isolated=True)
def deaf(word: str) -> None:
    say(word)
    ctypes.PyDLL(None).sleep(60)


@app.task(name="hold")
def hold(word: str) -> None:
    say(f"{word}-{current_job().attempt}")
    while not (folder / "go on").exists():
        time.sleep(0.005)
"""


class Place:
    """A folder with the program above, and the workers that were started in it."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.folder = folder
        (folder / "jobs.py").write_text(MODULE)
        (folder / "url").write_text(url or f"sqlite:///{folder}/jobs.db")
        self.app = Forebay((folder / "url").read_text())
        self._started: list[subprocess.Popen[bytes]] = []

    def worker(self, *options: str) -> subprocess.Popen[bytes]:
        log = self.folder / f"log-{len(self._started)}"
        with log.open("wb") as file:
            words = [sys.executable, "-m", "forebay", "worker", "jobs:app", *options]
            started = subprocess.Popen(words, cwd=self.folder, stdout=file, stderr=file)
        self._started.append(started)
        until(lambda: b"runs" in log.read_bytes() or self.children(started.pid))
        return started

    def wait_for_word(self, word: str) -> tuple[int, float]:
        """Who has said this word, and when."""
        until((self.folder / word).exists)
        pid, at = (self.folder / word).read_text().split()
        return int(pid), float(at)

    def enqueue(self, task: str, *args: Any, **options: Any) -> None:
        self.app.enqueue(task, args, **options)

    def children(self, pid: int) -> list[int]:
        found = Path(f"/proc/{pid}/task/{pid}/children")
        return [int(one) for one in found.read_text().split()] if found.exists() else []

    def close(self) -> None:
        for one in self._started:
            one.kill()
            one.wait()
        self.app.close()


@contextmanager
def place(url: str | None = None) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="forebay-workers-") as folder:
        made = Place(Path(folder), url)
        try:
            yield made
        finally:
            made.close()


def until(look: Callable[[], object]) -> float:
    """Wait for something to be true; when it was, by the clock that all processes of a machine share."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while not look():
        if time.monotonic() > ends:
            raise TimeoutError("it did not happen")
        time.sleep(0.002)
    return time.monotonic()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


# ------------------------------------------------------------------ isolated tasks


def isolated_speed(processes: int, jobs: int) -> float:
    """Jobs of 5 ms of processor time a second; the processes are warm."""
    with place() as here:
        here.worker("--isolated", str(processes))
        for count in (50 * processes, jobs):
            began, before = time.monotonic(), done(here.app)
            here.app.enqueue_many([NewJob(task="work", payload=encode_call((), {})) for _ in range(count)])
            goal = before + count
            until(lambda goal=goal: done(here.app) >= goal)  # type: ignore[misc]  # bound here and now
            speed = count / (time.monotonic() - began)
    return speed


def done(app: Forebay) -> int:
    counts = app.counts()
    return counts[QUEUE].completed if QUEUE in counts else 0


def measure_isolated(rounds: int, jobs: int) -> Measurement:
    pairs = [(isolated_speed(2, jobs), isolated_speed(1, jobs)) for _ in range(rounds)]
    ratio = median(two / one for two, one in pairs)
    return Measurement(
        measure="isolated jobs of 5 ms, two processes",
        ours=median(two for two, _ in pairs),
        unit="/s",
        against=f"{median(one for _, one in pairs):,.0f}/s by one",
        ratio=ratio,
        goals=(at_least(ratio, 1.5, " times one"),),
        rounds=tuple(two for two, _ in pairs),
        against_rounds=tuple(one for _, one in pairs),
    )


def measure_timeout(rounds: int) -> Measurement:
    """From the time limit until the process is dead; the job holds the interpreter."""
    late = []
    with place() as here:
        here.worker("--isolated", "1")
        for number in range(rounds):
            here.enqueue("deaf", f"deaf-{number}", timeout=1, retries=0)
            pid, began = here.wait_for_word(f"deaf-{number}")
            late.append(until(lambda pid=pid: not is_alive(pid)) - began - 1)  # type: ignore[misc]  # as above
    return seconds("a hard timeout comes late by", late, 0.5)


# ------------------------------------------------------------------ deaths


def measure_killed_child(rounds: int) -> Measurement:
    """From the death of a worker process until its job runs again in its sibling."""
    return seconds("killed worker process: runs again after", [killed_child() for _ in range(rounds)], 1.0)


def killed_child() -> float:
    with place() as here:
        supervisor = here.worker("--processes", "2")
        until(lambda: len(here.app.client.read(lambda reader: reader.workers())) == 2)
        here.enqueue("hold", "job")
        pid, _ = here.wait_for_word("job-1")
        assert pid in here.children(supervisor.pid)
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        return here.wait_for_word("job-2")[1] - killed


def measure_killed_supervisor(rounds: int) -> Measurement:
    """From the death of a supervisor, and with it of its worker processes, until another has the job."""
    goal = LEASE_SECONDS + 2
    after = [killed_supervisor() for _ in range(rounds)]
    return seconds(f"killed supervisor, lease {LEASE_SECONDS:g} s: again after", after, goal)


def killed_supervisor() -> float:
    with place() as here:
        supervisor = here.worker("--processes", "1")
        here.enqueue("hold", "job", lease=LEASE_SECONDS)
        here.wait_for_word("job-1")
        here.worker()
        killed = time.monotonic()
        supervisor.kill()
        return here.wait_for_word("job-2")[1] - killed


# ------------------------------------------------------------------ idling


def measure_idle(
    length: float, url: str | None = None, most: float = 35, above: float = 30
) -> list[Measurement]:
    """A worker process that has nothing to do, and its supervisor, with the megabytes that they may have."""
    with place(url) as here:
        supervisor = here.worker("--processes", "1").pid
        [child] = until_some(lambda: here.children(supervisor))
        until(lambda: here.app.client.read(lambda reader: reader.workers()))
        time.sleep(min(3.0, length))  # what a start leaves behind has settled
        before = ticks(child)
        time.sleep(length)
        used = (ticks(child) - before) / TICKS / length * 100
        of_child, of_supervisor = resident(child), resident(supervisor)
    return [
        Measurement("an idle worker process", of_child, " MB", goals=(at_most(of_child, most, " MB"),)),
        Measurement("its supervisor", of_supervisor, " MB", goals=(at_most(of_supervisor, above, " MB"),)),
        Measurement("an idle worker process", used, " % of a core", goals=(at_most(used, 0.5, " %"),)),
    ]


def until_some(look: Callable[[], list[int]]) -> list[int]:
    until(look)
    return look()


def resident(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / MB


def ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


# ------------------------------------------------------------------ unknown tasks


def measure_strangers(rounds: int, strangers: int) -> Measurement:
    """A claim of a hundred jobs, with and without jobs of an unknown task that stand in front of them."""
    with tempfile.TemporaryDirectory(prefix="forebay-workers-") as folder:
        alone, crowded = (open_engine(f"sqlite:///{folder}/{name}.db").store() for name in ("one", "two"))
        insert(crowded, "unknown", strangers)
        for store in (alone, crowded):
            insert(store, "known", 10 * ROOM)
        while not claim(crowded)[1]:
            pass  # jobs of unknown tasks are parked once, a bounded number with each claim
        pairs = [(claim(crowded)[0], claim(alone)[0]) for _ in range(20 * rounds)]
        alone.close()
        crowded.close()
    ratio = median(one for one, _ in pairs) / median(two for _, two in pairs)
    return Measurement(
        measure=f"claim behind {strangers:,} of an unknown task",
        ours=median(one for one, _ in pairs) * 1_000,
        unit=" ms",
        against=f"{median(two for _, two in pairs) * 1_000:.3g} ms without",
        ratio=ratio,
        goals=(at_most(ratio, 1.5, " times without"),),
    )


def insert(store: Store, task: str, jobs: int) -> None:
    job = NewJob(task=task, payload=encode_call((), {}))
    for _ in range(0, jobs, BATCH):
        store.insert([job] * min(BATCH, jobs))


def claim(store: Store) -> tuple[float, int]:
    """How long a claim takes and how many jobs it gives; they are handed back."""
    worker = WorkerId("bench")
    began = time.perf_counter()
    jobs = store.settle_and_claim(
        worker, [], [QueueClaim(QUEUE, ROOM, lanes=lanes_for_program(["known"], 1))], ROOM
    ).jobs
    took = time.perf_counter() - began
    store.settle_and_claim(worker, [decide(job, Interrupted(), 0.0) for job in jobs], [], 0)
    return took, len(jobs)


# ------------------------------------------------------------------ all of it


def seconds(measure: str, found: list[float], goal: float) -> Measurement:
    return Measurement(
        measure, median(found), " s", goals=(at_most(median(found), goal, " s"),), rounds=tuple(found)
    )


def main() -> None:
    chosen = parser(__doc__).parse_args()
    rounds, jobs, strangers, idle = (
        (2, 200, 20_000, 3.0) if chosen.quick else (chosen.rounds, 1_000, 1_000_000, 20.0)
    )
    before = machine()
    measurements = [
        measure_isolated(rounds, jobs),
        measure_timeout(rounds),
        measure_killed_child(rounds),
        measure_killed_supervisor(rounds),
        *measure_idle(idle),
        measure_strangers(rounds, strangers),
    ]
    show("Workers", measurements)
    write(chosen.json, before, measurements)


if __name__ == "__main__":
    main()
