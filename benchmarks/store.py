"""What the embedded store costs, beside what SQLite alone costs, in one run: `make bench`.

Rows that have a goal are ratios: inserts against a bare job table with one index in the same folder, claims
on a large store against claims on a small one. Each pair is measured alternately, inserts in five slices, and
the median of the rounds counts. Requests are made beforehand on both sides: this is the store alone.
`--json FILE` writes the measurements, `--quick` uses a tenth of the sizes.
"""

from __future__ import annotations

import argparse
import atexit
import json
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from forebay.domain.job import Job, NewJob, QueueName, WorkerId
from forebay.domain.outcome import Completed
from forebay.domain.settlement import Settlement, decide
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine

PAYLOAD = b'{"v":1,"args":["' + b"x" * 80 + b'"],"kwargs":{}}'
WORKER = WorkerId("bench")
QUEUE = QueueName("default")
DAY_MS = 86_400_000
WARM = 4_000
SLICES = 5

BARE_TABLE = """
create table jobs (
  id integer primary key, queue text not null, state integer not null default 0,
  priority integer not null default 0, run_at real not null, attempts integer not null default 0,
  payload text not null, finished real
);
create index ready on jobs (queue, priority, run_at, id) where state = 0;
"""
BARE_INSERT = "insert into jobs (queue, run_at, payload) values ('d', ?, ?)"


class Bare:
    """SQLite alone: the limit that no queue can pass."""

    def __init__(self, folder: Path, synchronous: str) -> None:
        self._raw = sqlite3.connect(folder / "bare.db", isolation_level=None)
        self._raw.execute("pragma journal_mode = wal")
        self._raw.execute(f"pragma synchronous = {synchronous}")
        self._raw.executescript(BARE_TABLE)

    def one_by_one(self, jobs: int) -> None:
        text = PAYLOAD.decode()
        for _ in range(jobs):
            self._raw.execute(BARE_INSERT, (1.0, text))

    def in_bulk(self, jobs: int) -> None:
        rows = [(1.0, PAYLOAD.decode())] * 1_000
        for _ in range(jobs // 1_000):
            self._raw.execute("begin")
            self._raw.executemany(BARE_INSERT, rows)
            self._raw.execute("commit")


def ours_one_by_one(store: Store, jobs: int) -> None:
    one = [NewJob(task="noop", payload=PAYLOAD)]
    for _ in range(jobs):
        store.insert(one)


def ours_in_bulk(store: Store, jobs: int, *, delay_ms: int = 0) -> None:
    batch = [NewJob(task="noop", payload=PAYLOAD, delay_ms=delay_ms) for _ in range(1_000)]
    for _ in range(jobs // 1_000):
        store.insert(batch)


def completed(jobs: tuple[Job, ...]) -> list[Settlement]:
    return [decide(job, Completed(b"null"), 0.0) for job in jobs]


def drain(store: Store, at_a_time: int = 100) -> int:
    """Settle and claim until nothing is left; answers how many jobs were completed."""
    done = 0
    settlements: list[Settlement] = []
    while True:
        answer = store.settle_and_claim(WORKER, settlements, [QueueClaim(QUEUE, at_a_time)], at_a_time)
        done += len(settlements)
        if not answer.jobs:
            return done
        settlements = completed(answer.jobs)


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def per_second(work: Callable[[], object], jobs: int) -> float:
    return jobs / seconds(work)


def fresh(durability: str = "default") -> tuple[Path, Store]:
    folder = Path(tempfile.mkdtemp(prefix="forebay-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder, open_engine(f"sqlite:///{folder}/jobs.db?durability={durability}").store()


def insert_pair(durability: str, synchronous: str, jobs: int, how: str) -> tuple[float, float]:
    folder, store = fresh(durability)
    bare = Bare(folder, synchronous)
    ours = ours_one_by_one if how == "one_by_one" else ours_in_bulk
    raw = bare.one_by_one if how == "one_by_one" else bare.in_bulk
    # Until the write-ahead log has its size, each sync has to write the file's new length too.
    ours(store, WARM)
    raw(WARM)
    size = jobs // SLICES
    elapsed = [(seconds(lambda: ours(store, size)), seconds(lambda: raw(size))) for _ in range(SLICES)]
    store.close()
    return jobs / sum(each[0] for each in elapsed), jobs / sum(each[1] for each in elapsed)


def claim_ms(store: Store, rounds: int) -> float:
    """The median time of a round trip that claims 100 and hands the last 100 back as completed."""
    times = []
    settlements: list[Settlement] = []
    for _ in range(rounds):
        began = time.perf_counter()
        answer = store.settle_and_claim(WORKER, settlements, [QueueClaim(QUEUE, 100)], 100)
        times.append((time.perf_counter() - began) * 1_000)
        settlements = completed(answer.jobs)
        if len(answer.jobs) != 100:
            raise SystemExit(f"a claim of 100 gave {len(answer.jobs)} jobs")
    return statistics.median(times)


def filled(pending: int, *, scheduled: int = 0, finished: int = 0, label: str) -> Store:
    _, store = fresh("relaxed")
    with Progress(label, finished + scheduled + pending) as progress:
        for done in range(0, finished, 10_000):
            ours_in_bulk(store, 10_000)
            drain(store, 1_000)
            progress.at(done)
        for done in range(0, scheduled, 10_000):
            ours_in_bulk(store, 10_000, delay_ms=DAY_MS)
            progress.at(finished + done)
        for done in range(0, pending, 1_000):
            ours_in_bulk(store, 1_000)
            progress.at(finished + scheduled + done)
    return store


class Progress:
    """A line that tells how far a long filling is, on a terminal only."""

    def __init__(self, label: str, total: int) -> None:
        self._label, self._total = label, total

    def __enter__(self) -> Progress:
        return self

    def at(self, done: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{self._label}: {100 * done // self._total} %", end="", file=sys.stderr)

    def __exit__(self, *_: object) -> None:
        if sys.stderr.isatty():
            print("\r" + " " * 60 + "\r", end="", file=sys.stderr)


def measure_inserts(rounds: int, scale: int) -> list[dict[str, object]]:
    rows = []
    plans = (
        ("insert one by one, durable", "default", "full", 4_000 // scale, "one_by_one", 0.85),
        ("insert one by one, relaxed", "relaxed", "normal", 20_000 // scale, "one_by_one", 0.5),
        ("insert 1,000 a call, durable", "default", "full", 100_000 // scale, "in_bulk", 0.4),
    )
    for name, durability, synchronous, jobs, how, goal in plans:
        pairs = [insert_pair(durability, synchronous, jobs, how) for _ in range(rounds)]
        ours = statistics.median(pair[0] for pair in pairs)
        raw = statistics.median(pair[1] for pair in pairs)
        ratio = statistics.median(pair[0] / pair[1] for pair in pairs)
        rows.append(row(name, f"{ours:,.0f}/s", f"{raw:,.0f}/s bare SQLite", ratio, goal, is_least=True))
    return rows


def measure_claims(rounds: int, scale: int) -> list[dict[str, object]]:
    """Each large store takes turns with the small one, so that a change of the machine's mood hits both."""
    large = 1_000_000 // scale
    small = filled(1_000, label="small backlog")
    rows = []
    for name, sizes in (
        ("claim 100, 1,000,000 pending", {"pending": large}),
        ("claim 100, 1,000,000 finished", {"finished": large, "pending": 1_000}),
        ("claim 100, 1,000,000 scheduled", {"scheduled": large, "pending": 1_000}),
    ):
        store = filled(**sizes, label=name)
        pairs = []
        for _ in range(rounds):
            for each in (small, store):
                ours_in_bulk(each, 3_000)
            base = claim_ms(small, 20)
            pairs.append((claim_ms(store, 20), base))
        ours = statistics.median(pair[0] for pair in pairs)
        base = statistics.median(pair[1] for pair in pairs)
        ratio = statistics.median(pair[0] / pair[1] for pair in pairs)
        rows.append(row(name, f"{ours:.2f} ms", f"{base:.2f} ms at 1,000", ratio, 1.5, is_least=False))
        store.close()
    small.close()
    return rows


def measure_drain(rounds: int, scale: int) -> list[dict[str, object]]:
    rows = []
    jobs = 50_000 // scale
    for durability in ("default", "full"):
        speeds = []
        for _ in range(rounds):
            _, store = fresh(durability)
            ours_in_bulk(store, jobs)
            speeds.append(per_second(lambda store=store: drain(store), jobs))  # type: ignore[misc]
            store.close()
        name = f"settle and claim by 100, {durability}"
        rows.append(row(name, f"{statistics.median(speeds):,.0f}/s", "", None, None, is_least=True))
    return rows


def row(
    name: str, ours: str, against: str, ratio: float | None, goal: float | None, *, is_least: bool
) -> dict[str, object]:
    met = None
    if ratio is not None and goal is not None:
        met = ratio >= goal if is_least else ratio <= goal
    return {"measure": name, "ours": ours, "beside": against, "ratio": ratio, "goal": goal, "met": met}


def show(rows: list[dict[str, object]]) -> None:
    print(f"{'measure':34} {'ours':>12}  {'beside':28} {'ratio':>6} {'goal':>6}")
    for line in rows:
        ratio = "" if line["ratio"] is None else f"{line['ratio']:.2f}"
        goal = "" if line["goal"] is None else f"{line['goal']:.2f}"
        result = {True: "met", False: "MISSED", None: ""}[line["met"]]  # type: ignore[index]
        print(f"{line['measure']:34} {line['ours']:>12}  {line['beside']:28} {ratio:>6} {goal:>6}  {result}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5, help="how often each pair is measured (5)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes, for a look in a minute")
    parser.add_argument("--only", choices=("inserts", "claims", "drain"), help="one part of the measures")
    parser.add_argument("--json", type=Path, help="also write the measurements to this file")
    chosen = parser.parse_args()
    scale = 10 if chosen.quick else 1
    parts = {"inserts": measure_inserts, "drain": measure_drain, "claims": measure_claims}
    rows: list[dict[str, object]] = []
    for name, measure in parts.items():
        if chosen.only in (None, name):
            rows += measure(chosen.rounds, scale)
    show(rows)
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
