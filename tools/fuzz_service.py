"""Throw requests at the service that its OpenAPI document allows, and requests that it does not.

    python tools/fuzz_service.py                     500 examples for each operation, all in one run
    python tools/fuzz_service.py --max-examples 20   fewer; what else is said goes to schemathesis
    python tools/fuzz_service.py --each              operation by operation, up to ten minutes for each
    python tools/fuzz_service.py --each claim settle --seconds 1200   these alone, up to twenty
    python tools/fuzz_service.py --each --record fuzz.jsonl --processes 2   two at a time, resumable

With `--each` every operation has a server, processes and a time of its own, and so many examples of the right
shape and as many of a wrong one, each by themselves: mixed, schemathesis takes some that it has spoilt for
right ones, and their refusal for a finding. There is a line for each: `ok`, `FOUND` with all that was said,
`cut off` where it had not ended in its time, `not run` where schemathesis could not do its work (the document
did not load, say), which is no finding about the service. A record has the same as a line of JSON; what is
`ok` or `FOUND` there is not run again.

A server is started on a store in memory, with some queues and jobs in it. All checks are made:
no 5xx, answers and headers as the document has them, requests of a wrong shape refused, those of a right one
accepted. What only the state of things or two fields together can refuse is answered with 404, 409 or 422
(docs/guide/service.md), so these count as answers to a request of the right shape.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryFile
from threading import Thread
from typing import Any, Final, TypedDict
from urllib.request import urlopen

from forebay.domain.job import NewJob, QueueName
from forebay.service.server import Server, open_listener
from forebay.service.server_security import ListenAddress
from forebay.stores.factory import open_engine

EXAMPLES: Final = 500
EACH_SECONDS: Final = 600
GRACE_SECONDS: Final = 60  # for what is under way when the time is over
# With a database Hypothesis looks for the simplest of all examples that are accepted: more than four fifths
# of the time of a run, in which nothing is sent.
NO_DATABASE: Final = ("--generation-database", "none")
# Where few texts are wrong, most of what is made is thrown away: slow, and no finding.
PATIENT: Final = ("--suppress-health-check", "filter_too_much")
# The last phase goes from operation to operation.
PHASES: Final = ("--phases", "examples,coverage,fuzzing")
# Of the wrong ones none has to be accepted.
MODES: Final = {"positive": (), "negative": ("--exclude-checks", "positive_data_acceptance")}
# How schemathesis ends when it had nothing to say, and when a check failed. Else: it could not work.
WORDS: Final = {0: "ok", 1: "FOUND"}
CUT_OFF: Final = "cut off"
NOT_RUN: Final = "not run"
SCHEMA_SECONDS: Final = 60
# A client asks for up to 20 seconds of waiting, and here nearly always for a queue that is empty.
LONGEST_WAIT_SECONDS: Final = 0.01
SETTINGS: Final = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "404", "409", "422", "429"]
"""


@contextmanager
def served() -> Iterator[str]:
    """The address of a server while the block lasts."""
    engine = open_engine("memory://")
    store = engine.store()
    for name in ("default", "mail"):
        store.save_queue(QueueName(name))
        store.insert([NewJob(task="t", queue=QueueName(name)) for _ in range(5)])
    server = Server(engine, version="fuzzed", longest_wait=LONGEST_WAIT_SECONDS)
    with open_listener(ListenAddress(port=0)) as listener:
        thread = Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        while thread.is_alive() and not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def command(address: str, folder: Path, words: Sequence[str]) -> list[str]:
    """How schemathesis is called with these options."""
    settings = folder / "schemathesis.toml"
    settings.write_text(SETTINGS)
    schemathesis = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(settings)]
    schema = f"{address}/openapi/v1.json"
    return [*schemathesis, "run", schema, "--checks", "all", *NO_DATABASE, *PATIENT, *words]


def fuzz(words: Sequence[str]) -> int:
    """Run schemathesis with these options; its status."""
    with served() as address, tempfile.TemporaryDirectory() as folder:
        # Not in this folder, where it leaves its examples.
        return subprocess.run(command(address, Path(folder), words), cwd=folder, check=False).returncode


def operations() -> list[str]:
    """The names of all operations."""
    with served() as address, urlopen(f"{address}/openapi/v1.json") as answer:  # noqa: S310 - our own server
        paths = json.load(answer)["paths"].values()
    return [one["operationId"] for path in paths for one in path.values()]


class FuzzResult(TypedDict):
    """How it went with one operation: a line of the record."""

    name: str
    mode: str
    word: str
    examples: int
    failures: int
    seconds: float
    output: str


def fuzz_each(names: Sequence[str], limits: Namespace, words: Sequence[str]) -> int:
    """Run schemathesis for each operation that the record does not have; 0 if all of them are `ok`."""
    record: Path | None = limits.record
    known = recorded(record) if record else {}
    pairs = [(name, mode) for name in names or operations() for mode in MODES]
    # A process for each server: the frameworks import some of their parts late, and not for several threads.
    with ProcessPoolExecutor(limits.processes, get_context("spawn"), max_tasks_per_child=1) as processes:
        runs = [processes.submit(fuzz_one, *one, limits.seconds, words) for one in pairs if one not in known]
        for run in as_completed(runs):
            fuzz_result = run.result()
            known[fuzz_result["name"], fuzz_result["mode"]] = fuzz_result
            line = "{word:8} {name:20} {mode:8} {examples:5} examples {seconds:4.0f} s {output}"
            print(line.format(**fuzz_result), flush=True)
            if record:
                with record.open("a") as lines:
                    lines.write(json.dumps(fuzz_result) + "\n")
    counts = Counter(known[one]["word"] for one in pairs)
    print(", ".join(f"{count} {word}" for word, count in counts.most_common()))
    return int(set(counts) != {WORDS[0]})


def recorded(record: Path) -> dict[tuple[str, str], FuzzResult]:
    """What the record says of the operations that have come to their end."""
    lines = record.read_text().splitlines() if record.exists() else []
    fuzz_results: list[FuzzResult] = [json.loads(line) for line in lines]
    return {(one["name"], one["mode"]): one for one in fuzz_results if one["word"] in WORDS.values()}


def fuzz_one(name: str, mode: str, seconds: float, words: Sequence[str]) -> FuzzResult:
    """How it went with one operation and requests of one kind."""
    began = time.monotonic()
    with served() as address, tempfile.TemporaryDirectory() as folder, TemporaryFile("w+") as output:
        report = Path(folder) / "report.json"
        options = ["--include-operation-id", name, "--mode", mode, *MODES[mode], *words]
        options += ["--wait-for-schema", str(SCHEMA_SECONDS), "--report-json-path", str(report)]
        line_of_command = command(address, Path(folder), options)
        run = subprocess.Popen(line_of_command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        is_over = _waited(run, seconds)
        if is_over:
            run.send_signal(signal.SIGINT)  # then it tells what it has found so far
            if _waited(run, GRACE_SECONDS):
                run.kill()
                run.wait()
        output.seek(0)
        text = output.read()
        record = json.loads(report.read_text()) if report.exists() else None
    cases = record["test_cases"] if record else {}
    word = CUT_OFF if is_over else WORDS.get(run.returncode, NOT_RUN)
    if cases.get("unique_failures"):
        word = WORDS[1]
    elif record and word == NOT_RUN and _has_nothing_to_spoil(record):
        word = WORDS[0]
    return FuzzResult(
        name=name,
        mode=mode,
        word=word,
        examples=cases.get("generated", 0),
        failures=cases.get("unique_failures", 0),
        seconds=round(time.monotonic() - began, 1),
        output=text if word in (WORDS[1], NOT_RUN) else "",
    )


def _has_nothing_to_spoil(report: dict[str, Any]) -> bool:
    """Whether an operation is there and no request to it can be wrong, which counts as an error."""
    selected: int = (report["operations"] or {}).get("selected", 0)
    return selected == 1 and not report["errors"]


def _waited(run: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for the end; whether it has not come in time."""
    try:
        run.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def main() -> int:
    words = sys.argv[1:]
    if words[:1] != ["--each"]:
        return fuzz(words if "--max-examples" in words else ["--max-examples", str(EXAMPLES), *words])
    options = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    options.add_argument("--each", nargs="*", default=[])
    options.add_argument("--seconds", type=float, default=EACH_SECONDS)
    options.add_argument("--max-examples", type=int, default=EXAMPLES)
    options.add_argument("--processes", type=int, default=1, help="how many operations at a time")
    options.add_argument(
        "--record", type=Path, help="a file with a line of JSON for each operation that has ended"
    )
    parsed, more = options.parse_known_args(words)
    return fuzz_each(parsed.each, parsed, ["--max-examples", str(parsed.max_examples), *PHASES, *more])


if __name__ == "__main__":
    sys.exit(main())
