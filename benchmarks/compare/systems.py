"""Who is compared on which engine, with how many processes and threads, and the environments they run in."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).parents[2]
PEERS: Final = TOP / ".venv-peers"
# What a user has who installs Forebay for a server, and nothing else. A driver imports some of what it finds,
# redis-py all of OpenTelemetry (50 ms and 4 MB), and an environment for development has much to find.
OWN: Final = "forebay"
OWN_PACKAGES: Final = f"{TOP}[postgres,redis]"
LIST: Final = Path(__file__).with_name("peers.txt")
OURS, RAW, PEER = "ours", "raw", "peer"
ALL_ROWS: Final = "bulk backlog waves sizes mixed queues"


@dataclass(frozen=True, kw_only=True)
class System:
    """One way to run jobs. `command` starts a worker, `workers` of them side by side; `drained` jobs keep
    them busy for some seconds on the machine on which this was written."""

    name: str
    driver: str
    command: str = "python -m {driver}"
    workers: int
    drained: int
    can: str = "waves sizes"  # the rows that not every system can do
    only: str = ""  # takes part in these rows and no others
    settings: Mapping[str, str] = field(default_factory=dict)  # in the environment of its processes
    options: str = ""  # added to the address of the store
    is_synced: bool = True  # an enqueue that has returned survives a power cut, as far as the engine goes
    is_quick: bool = True  # takes part in quick runs
    is_here: bool = False  # not a peer, and run from this tree and environment
    commit: str = ""  # Forebay as it was in this commit, beside the one of this tree

    @property
    def kind(self) -> str:
        return OURS if self.driver == "forebay" else RAW if self.driver.startswith("raw_") else PEER

    @property
    def bin(self) -> Path:
        """The programs of its environment; the engine alone has ours."""
        if self.kind == PEER:
            return PEERS / self.driver / "bin"
        return Path(sys.prefix) / "bin" if self.is_here else PEERS / OWN / "bin"

    @property
    def path(self) -> list[str]:
        """Where its interpreters look for modules first."""
        return [*([str(PEERS / f"{OWN}-{self.commit}" / "src")] if self.commit else []), str(TOP)]

    def words(self, number: int, extra: str = "") -> list[str]:
        """What starts the worker with this number."""
        driver = f"benchmarks.compare.drivers.{self.driver}"
        program, *rest = (self.command + extra).format(driver=driver, number=number).split()
        python = str(self.bin / "python")
        return [python, *rest] if program == "python" else [python, str(self.bin / program), *rest]


WORKER: Final = "forebay worker {driver}:app"
HUEY: Final = "python -m huey.bin.huey_consumer {driver}.huey -q -n "
SAQ: Final = "saq {driver}.settings --quiet --workers 2"
PROCRASTINATE: Final = "procrastinate --app {driver}.app worker -c 10"
TASKIQ: Final = (
    "taskiq worker {driver}:broker -w 2 --log-level ERROR --max-async-tasks 100 --max-prefetch 100 --no-parse"
)
CELERY: Final = (
    "celery -A {driver} worker -l ERROR --without-gossip --without-mingle --without-heartbeat -P solo "
    "-n w{number}@x"
)
# Processes and threads of the peers are those that were found best for each.
SYSTEMS: Final[Mapping[str, Sequence[System]]] = {
    "sqlite": (
        System(name="forebay", driver="forebay", command=WORKER, workers=1, drained=60_000, can=ALL_ROWS),
        System(
            name="forebay full", driver="forebay", command=WORKER, workers=1, drained=50_000,
            options="?durability=full", only="drain",
        ),
        System(
            name="forebay relaxed", driver="forebay", command=WORKER, workers=1, drained=50_000,
            options="?durability=relaxed", only="enqueue", is_synced=False,
        ),
        System(
            name="huey", driver="huey", command=HUEY + "-k thread -w 1", workers=1, drained=8_000,
            can="waves sizes backlog",
        ),
        System(name="litequeue", driver="litequeue", workers=1, drained=8_000, is_synced=False),
        System(name="persist-queue", driver="persistqueue", workers=1, drained=3_000),
        System(name="raw", driver="raw_sqlite", workers=1, drained=200_000, only="enqueue bulk drain"),
        System(
            name="raw normal", driver="raw_sqlite", workers=1, drained=200_000, can="bulk backlog",
            settings={"COMPARE_SYNC": "normal"}, is_synced=False,
        ),
    ),
    "postgres": (
        System(name="forebay", driver="forebay", command=WORKER, workers=2, drained=60_000, can=ALL_ROWS),
        System(
            name="pgqueuer", driver="pgqueuer", workers=2, drained=40_000,
            can="waves sizes bulk backlog mixed",
        ),
        System(
            name="huey", driver="huey", command=HUEY + "-k thread -w 1", workers=2, drained=4_000,
            can="waves sizes backlog",
        ),
        System(
            name="procrastinate", driver="procrastinate", command=PROCRASTINATE, workers=2, drained=2_000,
            can="waves sizes bulk backlog mixed", is_quick=False,
        ),
        System(
            name="chancy", driver="chancy", workers=1, drained=10_000, can="waves sizes bulk", is_quick=False
        ),
        System(
            name="saq", driver="saq", command=SAQ, workers=1, drained=2_000, is_quick=False,
            settings={"COMPARE_CONCURRENCY": "50"},
        ),
        System(name="django-tasks-db", driver="django_tasks", workers=2, drained=300, is_quick=False),
        System(name="raw", driver="raw_postgres", workers=2, drained=100_000, can="bulk backlog"),
    ),
    "redis": (
        System(name="forebay", driver="forebay", command=WORKER, workers=2, drained=60_000, can=ALL_ROWS),
        System(
            name="dramatiq", driver="dramatiq", command="dramatiq {driver} -p 2 -t 8 --skip-logging",
            workers=1, drained=8_000, can="waves sizes backlog",
        ),
        System(
            name="taskiq", driver="taskiq", command=TASKIQ, workers=1, drained=8_000, can="waves sizes mixed"
        ),
        System(
            name="huey", driver="huey", command=HUEY + "-k process -w 2", workers=1, drained=8_000,
            can="waves sizes backlog",
        ),
        System(
            name="streaq", driver="streaq", command="streaq run {driver}:worker -w 2", workers=1,
            drained=3_000, can="waves sizes bulk",
        ),
        System(name="saq", driver="saq", command=SAQ, workers=1, drained=3_000, is_quick=False),
        System(name="arq", driver="arq", workers=2, drained=3_000, is_quick=False),
        System(name="celery", driver="celery", command=CELERY, workers=2, drained=3_000, is_quick=False),
        System(name="rq", driver="rq", workers=2, drained=800, can="waves sizes bulk", is_quick=False),
        System(name="raw", driver="raw_redis", workers=1, drained=100_000, can="bulk backlog"),
    ),
}  # fmt: skip


def packages(name: str) -> list[str]:
    lines = [line.partition(":") for line in LIST.read_text(encoding="utf-8").splitlines()]
    return next((words.split() for named, _, words in lines if named == name), [])


def install(name: str) -> None:
    """Make the environment of a peer, unless it is there and was made of the same packages."""
    wanted, folder = packages(name), PEERS / name
    mark = folder / "installed"
    if mark.exists() and mark.read_text(encoding="utf-8").split() == wanted:
        return
    print(f"installing {' '.join(wanted)} ...", file=sys.stderr, flush=True)
    _run(sys.executable, "-m", "venv", "--clear", str(folder))
    _run(str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *wanted)
    mark.write_text(" ".join(wanted), encoding="utf-8")


def install_own() -> None:
    """Install this very tree, as a user would."""
    folder = PEERS / OWN
    if not folder.exists():
        _run(sys.executable, "-m", "venv", str(folder))
    _run(str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", OWN_PACKAGES)


def with_base(systems: Sequence[System], base: str) -> list[System]:
    """Put Forebay as it was in a commit beside each Forebay of these systems.

    Both run in one environment: a comparison of two commits is one of code, not of what it needs.
    """
    named = _git("rev-parse", "--short", f"{base}^{{commit}}")
    if named.returncode:
        raise SystemExit(f"--base {base}: {named.stderr.decode().strip()}")
    commit = named.stdout.decode().strip()
    if not (folder := PEERS / f"{OWN}-{commit}").exists():
        with tarfile.open(fileobj=BytesIO(_git("archive", commit, "src").stdout)) as files:
            files.extractall(folder)  # noqa: S202 - git made it, of this repository
    ours = [system for system in systems if system.kind == OURS]
    pairs = [(one, replace(one, name=f"{one.name} {commit}", commit=commit)) for one in ours]
    return [system for pair in pairs for system in pair]


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *words], cwd=TOP, capture_output=True, check=False)


def _run(*words: str) -> None:
    # The page of the dashboard is not measured.
    settings = {**os.environ, "FOREBAY_SKIP_DASHBOARD": "1"}
    done = subprocess.run(words, env=settings, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise RuntimeError(f"cannot be installed: {' '.join(last)}")
