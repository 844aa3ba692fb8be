"""Jobs that write down outside of the store what they do, and programs that run them: for the checker of
histories, which compares that with what producers were told and with what the store says.

    python -m tests.evidence.papers URL FOLDER NAME      a worker; its clock is what FOLDER/clock-NAME says

Where FOLDER/clock-store exists, that is the store's clock, on every engine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

from evidence.history import Accepted, End, History, Start, problems
from forebay import Forebay, JobHandle, current_job
from forebay.app.task import Task
from forebay.clock import SystemClock
from forebay.domain.job import DEFAULT_QUEUE, JobId, WorkerId
from forebay.domain.lease import Lease
from forebay.errors import StoreUnavailable
from tests.worker.support import eventually

ROOT: Final = Path(__file__).resolve().parents[2]
# Nothing here takes this long unless something is broken; the machine may be busy with other tests.
DEADLINE: Final = 90.0
LEASE_SECONDS: Final = 2


class Papers:
    """A folder in which the jobs of several programs write down what they do."""

    def __init__(self, folder: Path, clock: SystemClock | None = None) -> None:
        self.folder = folder
        self._clock = clock or SystemClock()  # that of the store, for the checker
        self._accepted: list[JobId] = []

    def task(self, app: Forebay, lease: int = 600) -> Task[[str], str]:
        """A task whose job waits, where its name begins with "hold", until `let_go` names it."""

        @app.task(name="work", lease=lease, max_crashes=50)
        def work(name: str) -> str:
            self.write("start")
            while name.startswith("hold") and not self._release_file(name).exists():
                time.sleep(0.01)
            self.write("end")
            return f"the end of {name}"

        return work

    def write(self, what: str) -> None:
        context = current_job()
        line = json.dumps(
            [what, context.id, context.attempt, context.fencing_token.worker, self._clock.now_ms()]
        )
        # In one piece, at the end of the file: several processes write to it.
        file = os.open(self.folder / "papers", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{line}\n".encode())
        os.close(file)

    def let_go(self, name: str) -> None:
        self._release_file(name).touch()

    def _release_file(self, name: str) -> Path:
        return self.folder / f"go on {name}"

    def accepted(self, *jobs: JobHandle[str]) -> None:
        """A producer was told that these are stored."""
        self._accepted += [job.id for job in jobs]

    def holders(self, job: JobHandle[str]) -> list[str]:
        """The workers that have begun a job, in order."""
        return [worker for what, job_id, _, worker, _ in self._lines() if (what, job_id) == ("start", job.id)]

    def starts(self) -> int:
        return sum(line[0] == "start" for line in self._lines())

    def _lines(self) -> list[tuple[str, JobId, int, WorkerId, int]]:
        file = self.folder / "papers"
        return [tuple(json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []

    def wait(self, app: Forebay) -> None:
        for job_id in self._accepted:
            app.job(job_id).wait(DEADLINE)

    def check(self, app: Forebay) -> None:
        """Wait until every accepted job has ended, and compare all accounts of it."""
        self.wait(app)
        history = History()
        for job_id in self._accepted:
            history.accepted[job_id] = Accepted(id=job_id, at=0, due_at=0, queue=DEFAULT_QUEUE, task="work")
        for what, job_id, attempt, worker, at in self._lines():
            lease = Lease(job_id, attempt)
            if what == "start":
                history.starts.append(Start(lease=lease, worker=worker, at=at))
            else:
                history.ends.append(End(lease=lease, at=at, is_good=True))
        lives = {job_id: app.client.history(job_id) for job_id in self._accepted}
        assert list(problems(history, lives)) == []
        assert app.client.read(lambda reader: reader.health()).problems == ()


def refusal(work: Task[[str], str], words: str) -> str:
    """Wait until a producer is told this, whatever it is told before; all of what it is told then."""
    messages: list[str] = []

    def is_refused() -> bool:
        try:
            work.using(idempotency_key="in doubt").enqueue("in doubt")
        except StoreUnavailable as exc:
            messages.append(str(exc))
        return bool(messages) and words in messages[-1]

    eventually(is_refused, DEADLINE)
    return messages[-1]


def acceptance(work: Task[[str], str], name: str = "in doubt") -> JobHandle[str]:
    """Wait until a producer is told that the same job is stored; there is one, whatever was said before."""
    jobs: list[JobHandle[str]] = []

    def is_accepted() -> bool:
        with suppress(StoreUnavailable):
            jobs.append(work.using(idempotency_key=name).enqueue(name))
        return bool(jobs)

    eventually(is_accepted, DEADLINE)
    return jobs[0]


class SkewedClock(SystemClock):
    """The clock of a machine that is wrong by as many seconds as a file says."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def now_ms(self) -> int:
        text = self._file.read_text() if self._file.exists() else ""
        return super().now_ms() + round(float(text or 0) * 1_000)


class Program(NamedTuple):
    process: subprocess.Popen[str]
    worker: str  # its id


@contextmanager
def a_worker(url: str, folder: Path, name: str) -> Iterator[Program]:
    """A worker program that is up; it does not outlive the block."""
    command = [sys.executable, "-m", __name__, url, str(folder), name]
    log = (folder / f"log-{name}").open("wb")
    with (
        log,
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            first_line = process.stdout.readline()
            assert first_line, (folder / f"log-{name}").read_text()
            yield Program(process, first_line.strip())
        finally:
            process.kill()


def main(url: str, folder: str, name: str) -> None:
    of_store = Path(folder) / "clock-store"
    # A file has no clock but that of its machine.
    is_own = of_store.exists() and not url.startswith("sqlite")
    clock = SkewedClock(Path(folder) / f"clock-{name}")
    if is_own:
        import_module("tests.evidence.store_clocks").use_stepped_scripts()
    app = Forebay(url, clock=clock)
    stores = SkewedClock(of_store) if is_own else clock if url.startswith("sqlite") else None
    Papers(Path(folder), stores).task(app, LEASE_SECONDS)
    # A queue that no other worker serves shows whether this one still works.
    with app, app.run_worker(queues=["default", name], threads=2) as worker:
        sys.stdout.write(f"{worker.info.id}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
