"""Throw requests at the service that its OpenAPI document allows, and requests that it does not.

    python tools/fuzz_service.py                     500 examples for each operation
    python tools/fuzz_service.py --max-examples 20   fewer; what else is said goes to schemathesis
    python tools/fuzz_service.py --each              operation by operation, up to two minutes for each
    python tools/fuzz_service.py --each claim settle --seconds 300   these alone, up to five

All at once takes hours on two cores. With `--each` every operation has a server and a time of its own; what
has not ended by then is broken off and says so. There is a line for each operation, with all that was said
where something was found.

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
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from threading import Thread
from typing import Final
from urllib.request import urlopen

from forebay.domain.job import NewJob, QueueName
from forebay.service.server import Address, Server, listening
from forebay.stores.opening import open_engine

EXAMPLES: Final = 500
EACH_SECONDS: Final = 120
GRACE_SECONDS: Final = 60  # for what is under way when the time is over
# The last phase goes from operation to operation.
PHASES: Final = ("--phases", "examples,coverage,fuzzing")
FOUND: Final = "FAILURES"
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
    with listening(Address(port=0)) as listener:
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
    return [*schemathesis, "run", f"{address}/openapi/v1.json", "--checks", "all", *words]


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


def fuzz_each(names: Sequence[str], seconds: float, words: Sequence[str]) -> int:
    """Run schemathesis for one operation after the other; 1 if something was found."""
    worst = 0
    for name in names or operations():
        began = time.monotonic()
        word, said = fuzz_one(name, seconds, words)
        worst = max(worst, bool(said))
        print(f"{word:8} {name:20} {time.monotonic() - began:4.0f} s {said}", flush=True)
    return worst


def fuzz_one(name: str, seconds: float, words: Sequence[str]) -> tuple[str, str]:
    """How it went with one operation, and what was said where something was found."""
    with served() as address, tempfile.TemporaryDirectory() as folder, TemporaryFile("w+") as said:
        told = command(address, Path(folder), ["--include-operation-id", name, *words])
        run = subprocess.Popen(told, cwd=folder, stdout=said, stderr=subprocess.STDOUT)
        is_over = _waited(run, seconds)
        if is_over:
            run.send_signal(signal.SIGINT)  # then it tells what it has found so far
            if _waited(run, GRACE_SECONDS):
                run.kill()
                run.wait()
        said.seek(0)
        text = said.read()
    if FOUND in text or (run.returncode and not is_over):
        return "FOUND", text
    return ("cut off" if is_over else "ok"), ""


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
    asked, more = options.parse_known_args(words)
    return fuzz_each(asked.each, asked.seconds, ["--max-examples", str(asked.max_examples), *PHASES, *more])


if __name__ == "__main__":
    sys.exit(main())
