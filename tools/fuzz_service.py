"""Throw requests at the service that its OpenAPI document allows, and requests that it does not.

    python tools/fuzz_service.py                     500 examples for each operation
    python tools/fuzz_service.py --max-examples 20   fewer; what else is said goes to schemathesis

A server is started on a store in memory, with some queues and jobs in it. All checks are made:
no 5xx, answers and headers as the document has them, requests of a wrong shape refused, those of a right one
accepted. What only the state of things or two fields together can refuse is answered with 404, 409 or 422
(docs/guide/service.md), so these count as answers to a request of the right shape.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Final

from forebay.domain.job import NewJob, QueueName
from forebay.service.server import Address, Server, listening
from forebay.stores.opening import open_engine

EXAMPLES: Final = 500
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


def fuzz(words: Sequence[str]) -> int:
    """Run schemathesis with these options; its status."""
    with served() as address, tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "schemathesis.toml"
        settings.write_text(SETTINGS)
        schemathesis = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(settings)]
        command = [*schemathesis, "run", f"{address}/openapi/v1.json", "--checks", "all", *words]
        # Not in this folder, where it leaves its examples.
        return subprocess.run(command, cwd=folder, check=False).returncode


def main() -> int:
    words = sys.argv[1:]
    return fuzz(words if "--max-examples" in words else ["--max-examples", str(EXAMPLES), *words])


if __name__ == "__main__":
    sys.exit(main())
