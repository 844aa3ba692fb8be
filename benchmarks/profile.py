"""Where the time of one job goes: `make bench WHAT=profile ENGINE=sqlite|postgres|redis`.

py-spy looks at a program that enqueues one job after the other, and at a worker process that drains, from
outside and 500 times a second. What every thread is doing then is sorted into stages by the functions on its
stack; a thread that waits for work is left out. One that waits for the engine, for a core or for the lock of
the interpreter counts, so the stages of a worker add up to more than the time that one job takes.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.compare.notes import noted
from benchmarks.compare.report import table
from benchmarks.compare.rows import DEADLINE_SECONDS, FULL, Visit, visit
from benchmarks.compare.servers import Server, server
from benchmarks.compare.systems import PEERS, SYSTEMS, TOP, install, install_own
from benchmarks.compare.workers import cpu_seconds
from benchmarks.measurements import machine

EACH_SECOND: Final = 500
JOBS: Final = {"sqlite": 200_000, "postgres": 150_000, "redis": 150_000}
IDLE: Final = "waits for work"
# The innermost function says what is done. An engine that is a library has no function of its own to show:
# its time is that of the functions that call it.
ENGINE: Final = (
    r"(read_from_socket|send_packed_command|Connection\.wait|PreparedStatement\._send_and_fetch"
    r"|Transaction\.(all|one|run|run_rows|run_many)|Connection\.(write|_begin|execute)) \([^;]*$"
)
# In this order: the first pattern that is found in a stack names its stage.
ENQUEUE: Final[Mapping[str, str]] = {
    "the engine": ENGINE,
    "the client library": r"\((redis|psycopg|hiredis)/",
    "ids": r"forebay/(stores/id_generator|domain/ulid)\.py",
    "the store: our request and its answer": r"\(forebay/stores/",
    "encode the arguments": r"forebay/payload/(codec|typed_json)\.py",
    "check and build the job, hand it over": r"\(forebay/",
    "the program that enqueues": r".",
}
WORKER: Final[Mapping[str, str]] = {
    IDLE: r"(_work_until_touched|Condition\.wait|WakeSignal\.wait|Wakeups\.\w+|Event\.wait) "
    r"\([^;]*$|MainThread$",
    "run the task": r"noop \(",
    "decode the arguments": r"Invoker\.prepare \(",
    "encode the result": r"(Invoker\.make_outcome|_outcome_of_value) \(",
    "the call around the task": r"forebay/worker/(executors/|task_invoker)",
    "settle: the engine": rf"stores/sqlite/settle\.py.*{ENGINE}",
    "settle and claim: the engine": ENGINE,
    "settle and claim: the client library": r"\((redis|psycopg|hiredis)/",
    "settle and claim: our requests and rows": r"\(forebay/stores/",
    "decide what becomes of the job": r"forebay/(operations/settlement_isolation|domain/settlement)",
    "hand out, take back, count": r"\(forebay/worker/",
    "the rest": r".",
}


class Profile(NamedTuple):
    """In how many looks a thread was in each stage, and how many jobs went through meanwhile."""

    stages: Mapping[str, float]  # a share of the looks
    jobs: float
    seconds: float
    worker_cpu: float
    server_cpu: float


def look(pid: int, seconds: float, stages: Mapping[str, str]) -> Mapping[str, float]:
    """What the threads of a process do in these seconds."""
    with tempfile.NamedTemporaryFile(suffix=".txt") as file:
        words = (
            f"record --pid {pid} --rate {EACH_SECOND} --duration {seconds:.0f} --format raw --idle --threads"
        )
        subprocess.run(
            [
                str(PEERS / "py-spy" / "bin" / "py-spy"),
                *words.split(),
                "--nonblocking",
                "--output",
                file.name,
            ],
            check=True,
            capture_output=True,
        )
        return sorted_out(Path(file.name).read_text(encoding="utf-8").splitlines(), stages)


def sorted_out(stacks: Sequence[str], stages: Mapping[str, str]) -> Mapping[str, float]:
    """Each line is a stack, from the thread to its innermost function, and how often it was seen."""
    found: Counter[str] = Counter()
    threads: Counter[str] = Counter()
    for line in stacks:
        stack, _, times = line.rpartition(" ")
        threads[stack.partition(";")[0]] += int(times)
        stage = next((name for name, pattern in stages.items() if re.search(pattern, stack)), IDLE)
        found[stage] += int(times)
    # Every look sees all threads, and on a busy machine there are fewer looks than were asked for.
    looks = max(threads.values(), default=1)
    return {name: times / looks for name, times in found.items() if name != IDLE}


def enqueueing(one: Visit, seconds: float) -> Profile:
    words = [sys.executable, "-m", "benchmarks.compare.drive", one.system.driver, "load", "1"]
    subprocess.run(words, cwd=TOP, env=one.where.environment, check=True, stdout=subprocess.DEVNULL)
    words[-2:] = ["one_by_one", str(seconds + 3)]
    with subprocess.Popen(words, cwd=TOP, env=one.where.environment, stdout=subprocess.PIPE) as program:
        time.sleep(1.5)
        profile = watched(one, program.pid, seconds, ENQUEUE)
        answer = (program.communicate()[0] or b"").decode()
    each_second = float(json.loads(answer.splitlines()[-1])["per_second"])
    return profile._replace(jobs=each_second * profile.seconds)


def draining(one: Visit, seconds: float, jobs: int) -> Profile:
    one.drive("load", jobs)
    one.server.analyze()
    with one.working() as workers:
        workers.wait(1_000, DEADLINE_SECONDS)
        before = noted(one.where.notes).jobs
        profile = watched(one, workers.pids[0], seconds, WORKER)
        after = noted(one.where.notes).jobs
    if after >= jobs:
        print(f"warning: all {jobs:,} jobs were done before the look had ended", file=sys.stderr)
    return profile._replace(jobs=after - before)


def watched(one: Visit, pid: int, seconds: float, stages: Mapping[str, str]) -> Profile:
    began, ours, its = time.monotonic(), cpu_seconds([pid]), cpu_seconds([one.server.pid])
    found = look(pid, seconds, stages)
    took = time.monotonic() - began
    return Profile(found, 0, took, cpu_seconds([pid]) - ours, cpu_seconds([one.server.pid]) - its)


def show(title: str, profile: Profile, stages: Mapping[str, str]) -> None:
    total, each = sum(profile.stages.values()), profile.seconds * 1e6 / profile.jobs
    print(
        f"\n{title}: {profile.jobs / profile.seconds:,.0f} jobs a second under observation,"
        f" {each:.1f} us each"
    )
    worker, its = (cpu * 1e6 / profile.jobs for cpu in (profile.worker_cpu, profile.server_cpu))
    print(f"CPU for one job: {worker:.1f} us in the process, {its:.1f} us in the server\n")
    rows = (
        (name, f"{profile.stages[name] * each:.1f}", f"{profile.stages[name] / total:.0%}")
        for name in stages
        if name in profile.stages
    )
    print("\n".join(table(("stage", "us a job", "share"), rows)))


def profile(made: Server, engine: str, seconds: float, jobs: int) -> None:
    system = replace(SYSTEMS[engine][0], workers=1)
    with visit(system, made, FULL) as one:
        show("Enqueue one by one", enqueueing(one, seconds), ENQUEUE)
    with visit(system, made, FULL) as one:
        show("Drain by one worker process", draining(one, seconds, jobs), WORKER)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.profile", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--engine", choices=list(SYSTEMS), default="sqlite")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each program is looked at (5)")
    parser.add_argument("--jobs", type=int, help="how many wait for the worker")
    options = parser.parse_args()
    install("py-spy")
    install_own()
    with server(options.engine) as made:
        print(f"{options.engine}, py-spy, {EACH_SECOND} looks a second ({machine()}; {made.version})")
        profile(made, options.engine, options.seconds, options.jobs or JOBS[options.engine])


if __name__ == "__main__":
    main()
