"""What is measured of each system. Every row begins with an empty store."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import mean
from subprocess import PIPE
from typing import Final, NamedTuple

from benchmarks.compare.notes import delays_ms, now
from benchmarks.compare.servers import Server
from benchmarks.compare.systems import OURS, TOP, System
from benchmarks.compare.workers import Failed, Place, Workers, cpu_seconds, place, working

DEADLINE_SECONDS: Final = 120.0
FILL_SECONDS: Final = 900.0
WEIGHTS: Final = " -q " + ",".join(f"q{number}:{number}" for number in range(1, 9))


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much is measured."""

    rounds: int
    few_rounds: int  # of rows without a goal
    send_seconds: float
    drain_share: float  # of the jobs that a system drains in a full run
    probe_seconds: float
    idle_seconds: float
    backlog: int
    backlog_seconds: float
    burst: int
    bursts: int
    sized: int


FULL: Final = Scale(
    rounds=5, few_rounds=3, send_seconds=2.0, drain_share=1.0, probe_seconds=5.0, idle_seconds=2.0,
    backlog=1_000_000, backlog_seconds=10.0, burst=2_000, bursts=5, sized=2_000,
)  # fmt: skip
QUICK: Final = Scale(
    rounds=3, few_rounds=1, send_seconds=0.4, drain_share=0.25, probe_seconds=1.0, idle_seconds=0.5,
    backlog=100_000, backlog_seconds=1.0, burst=500, bursts=2, sized=400,
)  # fmt: skip


class Measure(NamedTuple):
    name: str
    unit: str
    is_speed: bool = True  # more is better
    is_synced: bool = False  # an enqueue and its sync are in it


class Visit:
    """One system on an empty store."""

    def __init__(self, system: System, server: Server, where: Place, scale: Scale) -> None:
        self.system = system
        self.server = server
        self.where = where
        self.scale = scale
        self.drained = max(100, round(system.drained * scale.drain_share))

    def drive(self, action: str, *numbers: float, seconds: float = DEADLINE_SECONDS) -> Mapping[str, float]:
        """Let a program of its own use the system; answers what it found."""
        python, name = str(self.system.bin / "python"), "benchmarks.compare.drive"
        try:
            done = subprocess.run(
                [python, "-m", name, self.system.driver, action, *map(str, numbers)],
                cwd=TOP,
                env=self.where.environment,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=True,
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"{action} did not end within {seconds:.0f} s") from None
        except subprocess.CalledProcessError as error:
            raise Failed(f"{action}: {' '.join(error.stderr.split()[-60:])}") from None
        answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return answer

    @contextmanager
    def working(self, extra: str = "") -> Iterator[Workers]:
        with working(self.system, self.where, extra) as workers:
            yield workers

    @contextmanager
    def counting(self) -> Iterator[Callable[[], int]]:
        """Yield a function that counts unfinished jobs, in a program of the system, which knows its store.
        For peers it returns 0."""
        if self.system.kind != OURS:
            yield lambda: 0
            return
        words = [
            str(self.system.bin / "python"),
            "-m",
            "benchmarks.compare.drive",
            self.system.driver,
            "count",
        ]
        with subprocess.Popen(
            words, cwd=TOP, env=self.where.environment, stdin=PIPE, stdout=PIPE, text=True, bufsize=1
        ) as program:
            requests, answers = program.stdin, program.stdout
            assert requests
            assert answers

            def unfinished() -> int:
                requests.write("\n")
                return int(answers.readline())

            unfinished()  # it is connected
            try:
                yield unfinished
            finally:
                program.communicate()  # the end of its input ends it

    def durable_at(self, last: float, unfinished: Callable[[], int]) -> float:
        """When the last job was completed in the store. For peers it is when it began to run, a little early,
        in their favour."""
        if self.system.kind != OURS:
            return last
        ends = time.monotonic() + DEADLINE_SECONDS
        while unfinished():
            if time.monotonic() > ends:
                raise Failed("not all jobs were completed")
            time.sleep(0.001)
        return now()

    def speed(self, jobs: int, extra: str = "") -> float:
        """Jobs a second, from the first that runs until the last is completed."""
        self.server.analyze()
        with self.counting() as unfinished, self.working(extra) as workers:
            noted = workers.wait(jobs, DEADLINE_SECONDS)
            return jobs / (self.durable_at(noted.last, unfinished) - noted.first)


@contextmanager
def visit(system: System, server: Server, scale: Scale) -> Iterator[Visit]:
    server.empty()
    with place(system, server.url) as where:
        made = Visit(system, server, where, scale)
        made.drive("setup")
        yield made


# Rows


def enqueue(one: Visit) -> Sequence[float]:
    before = cpu_seconds([one.server.pid])
    found = one.drive("one_by_one", one.scale.send_seconds)
    cpu = found["cpu_seconds"] + cpu_seconds([one.server.pid]) - before
    return [found["per_second"], cpu * 1e6 / found["count"]]


def bulk(one: Visit) -> Sequence[float]:
    return [one.drive("in_bulk", one.scale.send_seconds)["per_second"]]


def drain(one: Visit) -> Sequence[float]:
    one.drive("load", one.drained)
    one.server.analyze()
    with one.counting() as unfinished, one.working() as workers:
        started = workers.wait(1, DEADLINE_SECONDS).jobs
        before = cpu_seconds([*workers.pids, one.server.pid])
        noted = workers.wait(one.drained, DEADLINE_SECONDS)
        ended = one.durable_at(noted.last, unfinished)
        cpu = cpu_seconds([*workers.pids, one.server.pid]) - before
    return [one.drained / (ended - noted.first), cpu * 1e6 / (one.drained - started)]


def waiting(one: Visit) -> Sequence[float]:
    """A worker that starts beside one job, does nothing for a while and then gets a job every 20 ms."""
    one.drive("load", 1)
    with one.working() as workers:
        cold = workers.wait(1, DEADLINE_SECONDS).first - workers.began
        time.sleep(one.scale.idle_seconds)
        memory = mean(workers.resident_mb())
        sent = round(one.drive("probe", one.scale.probe_seconds)["sent"])
        workers.wait(sent + 1, DEADLINE_SECONDS)
        delays = delays_ms(one.where.notes)
        return [*(delays[len(delays) * percent // 100] for percent in (50, 95, 99)), memory, cold]


def backlog(one: Visit) -> Sequence[float]:
    """The first seconds beside a long backlog."""
    one.drive("fill", one.scale.backlog, seconds=FILL_SECONDS)
    with one.counting() as unfinished:
        with one.working() as workers:
            workers.wait(1, DEADLINE_SECONDS)
            time.sleep(one.scale.backlog_seconds)
            noted = workers.wait(1, DEADLINE_SECONDS)
        done = min(noted.jobs, one.scale.backlog - unfinished())
    return [done / (noted.last - noted.first)]


def waves(one: Visit) -> Sequence[float]:
    one.drive("load", 1)
    with one.working() as workers:
        workers.wait(1, DEADLINE_SECONDS)
        return [one.drive("waves", one.scale.burst, one.scale.bursts, 0.5)["per_second"]]


def sizes(one: Visit) -> Sequence[float]:
    sent = one.drive("sizes", one.scale.sized)["per_second"]
    return [sent, one.speed(one.scale.sized)]


def mixed(one: Visit) -> Sequence[float]:
    one.drive("mixed", one.drained // 1_000 * 1_000 or one.drained)
    return [one.speed(one.drained // 1_000 * 1_000 or one.drained)]


def queues(one: Visit) -> Sequence[float]:
    one.drive("queues", one.drained)
    return [one.speed(one.drained, WEIGHTS)]


class Row(NamedTuple):
    """Something to do with a system, and what it gives. Every system takes part that `can` it."""

    name: str
    take: Callable[[Visit], Sequence[float]]
    measures: Sequence[Measure]
    is_main: bool = True  # all can do it, and it is done more often

    def rounds(self, scale: Scale) -> int:
        if self.name == "backlog":
            return 1  # filling takes longer than measuring
        return scale.rounds if self.is_main else scale.few_rounds

    def has(self, system: System) -> bool:
        if system.only:
            return self.name in system.only.split()
        return (self.is_main and self.name != "bulk") or self.name in system.can.split()


def rows(scale: Scale) -> list[Row]:
    pick_up = [Measure(f"pick-up p{percent}", "ms", False, True) for percent in (50, 95, 99)]
    process = [Measure("memory of an idle process", "MB", False), Measure("cold start", "s", False)]
    sized = [Measure("enqueue, 100 B to 64 kB", "/s", True, True), Measure("drain, 100 B to 64 kB", "/s")]
    return [
        Row(
            "enqueue",
            enqueue,
            [
                Measure("enqueue one by one", "/s", True, True),
                Measure("CPU of an enqueue", "us", False, True),
            ],
        ),
        Row("bulk", bulk, [Measure("enqueue 1,000 a call", "/s")]),
        Row("drain", drain, [Measure("drain", "/s"), Measure("CPU of a drained job", "us", False)]),
        Row("waiting", waiting, [*pick_up, *process]),
        Row("backlog", backlog, [Measure(f"drain, {scale.backlog:,} waiting", "/s")], False),
        Row("waves", waves, [Measure("waves, a burst at a time", "/s", True, True)], False),
        Row("sizes", sizes, sized, False),
        Row("mixed", mixed, [Measure("drain, half of them coroutines", "/s")], False),
        Row("queues", queues, [Measure("drain, 8 weighted queues", "/s")], False),
    ]
