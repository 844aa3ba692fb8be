"""How settling and claiming fare when something grows: `make bench WHAT=growth [ENGINE=...] [PART=...]`.

What grows is the backlog, the history, the number of processes or the payload. Each process settles the
hundred jobs that it has and claims the next hundred in one call, and then inserts as many again, so that the
backlog stays as it is. Jobs a second and the CPU of a job, in the processes and in the server, count all of
that; p99 is that of the calls that settle and claim. Every point is kept in build/growth as soon as it is
there, and a run goes on where the last one was stopped; --again forgets what is there. The plots in
docs/images are drawn from all points that are kept.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import quantiles
from typing import Final, NamedTuple

from benchmarks.compare.report import number, table
from benchmarks.compare.servers import Server, server
from benchmarks.compare.systems import TOP
from benchmarks.compare.workers import cpu_seconds
from benchmarks.measurements import machine
from benchmarks.places import BATCH, LANES, QUEUE, Place, settled
from benchmarks.plots import Panel, svg
from forebay.domain.job import NewJob, WorkerId
from forebay.domain.settlement import Settlement
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.factory import open_engine

ENGINES: Final = ("sqlite", "postgres", "redis")
KEPT: Final = TOP / "build" / "growth"
IMAGES: Final = TOP / "docs" / "images"
PAYLOAD: Final = 109
SHORT: Final = 1_000
FEWEST: Final = 10  # calls
CHUNK: Final = 1_000
PARTS: Final[dict[str, tuple[str, Sequence[int]]]] = {
    "backlog": ("jobs waiting", (1_000, 10_000, 100_000, 1_000_000)),
    "history": ("jobs finished", (1_000, 10_000, 100_000, 1_000_000, 5_000_000)),
    "processes": ("processes", (1, 2, 3, 4)),
    "payload": ("bytes of payload", (100, 1_000, 8_000, 64_000)),
}
MOST_HISTORY: Final = {"sqlite": 1_000_000, "postgres": 5_000_000, "redis": 1_000_000}
TITLES: Final = {"jobs a second": "per_second", "p99 of a call, ms": "p99_ms", "CPU of a job, us": "cpu_us"}
QUICK_MOST: Final = 100_000


@dataclass(frozen=True)
class Point:
    """One measurement; `at` is the size of what grows."""

    at: int
    per_second: float
    p99_ms: float
    cpu_us: float  # of one job, in the processes and in the server
    about: str


class Turned(NamedTuple):
    """What one process did: its jobs, how long that took, and the seconds of each call."""

    jobs: int
    seconds: float
    cpu_seconds: float
    calls: list[float]


def turns(url: str, seconds: float, payload: int, process: int) -> Turned:
    """In a process of its own: settle, claim, and let as many again wait."""
    store = open_engine(url).store()
    worker, job = WorkerId(f"growth-{process}"), NewJob(task="send", payload=b"x" * payload)
    claims, done, calls, jobs = [QueueClaim(QUEUE, BATCH, None, LANES)], list[Settlement](), list[float](), 0
    started, cpu = time.perf_counter(), time.process_time()
    while (took := time.perf_counter() - started) < seconds or len(calls) < FEWEST:
        began = time.perf_counter()
        answer = store.settle_and_claim(worker, done, claims, BATCH)
        calls.append(time.perf_counter() - began)
        jobs += len(answer.settled)
        done = settled(answer.jobs)
        if done:
            store.insert([job] * len(done))
    cpu = time.process_time() - cpu
    store.settle_and_claim(worker, done)
    store.close()
    return Turned(jobs, took, cpu, calls[1:])  # the first one connects


def measured(
    made: Server, at: int, seconds: float, *, url: str = "", many: int = 1, size: int = PAYLOAD
) -> Point:
    """By so many processes, with payloads of this size, in the store of the server or another one there."""
    before, work = machine(), partial(turns, url or made.url, seconds, size)
    with ProcessPoolExecutor(many, mp_context=get_context("spawn")) as pool:
        list(pool.map(time.sleep, [0.5] * many))  # started before it counts
        cpu = cpu_seconds([made.pid])
        found = list(pool.map(work, range(many)))
        cpu = cpu_seconds([made.pid]) - cpu + sum(one.cpu_seconds for one in found)
    jobs = sum(one.jobs for one in found)
    return Point(
        at=at,
        per_second=sum(one.jobs / one.seconds for one in found),
        p99_ms=quantiles((call for one in found for call in one.calls), n=100)[98] * 1e3,
        cpu_us=cpu * 1e6 / max(jobs, 1),
        about=before,
    )


# What grows


def wait(url: str, jobs: int, payload: int = PAYLOAD) -> None:
    """Let so many more jobs wait."""
    store = open_engine(url).store()
    job = NewJob(task="send", payload=b"x" * payload)
    for start in range(0, jobs, CHUNK):
        store.insert([job] * min(CHUNK, jobs - start))
    store.close()


def finish(url: str, jobs: int) -> None:
    """Let so many more have finished: they are inserted, claimed and settled."""
    store = open_engine(url).store()
    job, worker = NewJob(task="send", payload=b"x" * PAYLOAD), WorkerId("past")
    for start in range(0, jobs, CHUNK):
        store.insert([job] * min(CHUNK, jobs - start))
        claimed = store.settle_and_claim(worker, (), [QueueClaim(QUEUE, CHUNK, None, LANES)], CHUNK).jobs
        store.settle_and_claim(worker, settled(claimed))
    store.close()


def backlog(made: Server, sizes: Sequence[int], seconds: float) -> Iterator[Point]:
    there = 0
    for size in sizes:
        wait(made.url, size - there)
        there = size
        made.analyze()
        yield measured(made, size, seconds)


def history(made: Server, sizes: Sequence[int], seconds: float) -> Iterator[Point]:
    if made.url.startswith("postgres"):
        yield from _history_by_sql(made, sizes, seconds)
        return
    there = 0
    for size in sizes:
        finish(made.url, size - there)
        there = size
        wait(made.url, SHORT)
        yield measured(made, size, seconds)


def _history_by_sql(made: Server, sizes: Sequence[int], seconds: float) -> Iterator[Point]:
    """Each in a store of its own, whose past is written straight into the tables."""
    for size in sizes:
        place = Place(made.url, "growth")
        try:
            place.remember(size)
            wait(place.url, SHORT)
            made.analyze()
            yield measured(made, size, seconds, url=place.url)
        finally:
            place.close()


def processes(made: Server, sizes: Sequence[int], seconds: float) -> Iterator[Point]:
    wait(made.url, 10 * SHORT)
    for size in sizes:
        yield measured(made, size, seconds, many=size)


def payload(made: Server, sizes: Sequence[int], seconds: float) -> Iterator[Point]:
    for size in sizes:
        made.empty()
        wait(made.url, SHORT, size)
        yield measured(made, size, seconds, size=size)


GROW: Final[dict[str, Callable[[Server, Sequence[int], float], Iterator[Point]]]] = {
    "backlog": backlog,
    "history": history,
    "processes": processes,
    "payload": payload,
}


# What is kept


def kept(engine: str, part: str) -> list[Point]:
    file = KEPT / f"{engine}-{part}.json"
    return [Point(**one) for one in json.loads(file.read_text(encoding="utf-8"))] if file.exists() else []


def keep(engine: str, part: str, point: Point) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    points = sorted([*kept(engine, part), point], key=lambda one: one.at)
    text = json.dumps([asdict(one) for one in points], indent=1)
    (KEPT / f"{engine}-{part}.json").write_text(text + "\n", encoding="utf-8")


def missing(engine: str, part: str, most: int) -> list[int]:
    limit = min(most, MOST_HISTORY[engine]) if part == "history" else most
    there = {point.at for point in kept(engine, part)}
    return [size for size in PARTS[part][1] if size <= limit and size not in there]


def grow(engine: str, part: str, most: int, seconds: float) -> None:
    sizes = missing(engine, part, most)
    if not sizes:
        return
    with server(engine) as made:
        made.empty()
        for point in GROW[part](made, sizes, seconds):
            keep(engine, part, point)
            print(f"{engine}, {part} {point.at:,}: {point.per_second:,.0f}/s", file=sys.stderr, flush=True)


# What is shown


def draw(part: str, folder: Path = IMAGES) -> None:
    points = {engine: found for engine in ENGINES if (found := kept(engine, part))}
    panels = [
        Panel(
            title=title,
            across=PARTS[part][0],
            lines={
                engine: [(one.at, getattr(one, name)) for one in found] for engine, found in points.items()
            },
            is_log=part != "processes",
        )
        for title, name in TITLES.items()
    ]
    if points:
        folder.mkdir(parents=True, exist_ok=True)
        drawn = svg(f"Growth of the {part}", panels, measured_at(points.values()))
        (folder / f"growth-{part}.svg").write_text(drawn, encoding="utf-8")


def measured_at(points: Iterable[Sequence[Point]]) -> str:
    """How busy the machine was: where others worked too, heights say little and shapes not much more."""
    about = [one.about for found in points for one in found]
    loads = [float(load) for text in about for load in re.findall(r"load ([\d.]+)", text)]
    cores = about[0].partition(",")[0]
    return f"{cores}, load {min(loads):.1f} to {max(loads):.1f}" if loads else ""


def shown(part: str) -> Iterator[str]:
    """A table of what is kept: jobs a second, p99, CPU of a job."""
    points = {engine: {one.at: one for one in kept(engine, part)} for engine in ENGINES}
    sizes = sorted({size for found in points.values() for size in found})

    def cell(engine: str, size: int) -> str:
        one = points[engine].get(size)
        return f"{number(one.per_second)}/s, {one.p99_ms:.1f} ms, {one.cpu_us:.0f} us" if one else "-"

    rows = ((f"{size:,}", *(cell(engine, size) for engine in ENGINES)) for size in sizes)
    return table((PARTS[part][0], *ENGINES), rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.growth", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--engine", choices=ENGINES, action="append", help="only this one")
    parser.add_argument("--part", choices=list(PARTS), action="append", help="only this one")
    parser.add_argument(
        "--quick", action="store_true", help=f"nothing larger than {QUICK_MOST:,}, two seconds a point"
    )
    parser.add_argument("--again", action="store_true", help="measure also what is kept from before")
    options = parser.parse_args()
    most, seconds = (QUICK_MOST, 2.0) if options.quick else (sys.maxsize, 10.0)
    for part in options.part or PARTS:
        for engine in options.engine or ENGINES:
            if options.again:
                (KEPT / f"{engine}-{part}.json").unlink(missing_ok=True)
            grow(engine, part, most, seconds)
        draw(part)
        print("\n" + "\n".join(shown(part)) + "\n", flush=True)


if __name__ == "__main__":
    main()
