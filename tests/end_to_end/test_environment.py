"""All programs of one installation beside each other: two workers, a scheduler, a server for the page."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.end_to_end.crews import DEADLINE, Crew, a_crew

QUEUES = ("high", "medium", "low")


def ask(address: str, path: str, body: object = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = Request(address + path, data, {"Content-Type": "application/json"})  # noqa: S310 - our own
    with urlopen(request, timeout=DEADLINE) as answer:  # noqa: S310
        content: bytes = answer.read()
    return content


def serving(crew: Crew) -> str:
    """The address of a server that is up."""
    server = crew.start("-m", "forebay", "server", "--port", "0", "--url", (crew.folder / "url").read_text())
    server.wait_for_output("http://")
    found = re.search(r"http://[^/\s]+", server.log)
    assert found is not None
    return found[0]


@pytest.mark.shows("R-TEST-49", "R-EDGE-46", "R-SDK-13")
def test_two_workers_a_scheduler_and_a_dashboard_on_one_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with a_crew(tmp_path, url) as crew:
        workers = [
            crew.worker("--queues", "high,low", "--threads", "2"),
            crew.worker("--queues", "medium", "--threads", "1"),
        ]
        scheduler = crew.start("-m", "forebay", "scheduler", "--polling-interval", "5s", "--url", url)
        address = serving(crew)
        for queue in QUEUES:
            crew.app.configure_queue(queue)
        words = "schedules add tick note 900 --every 1s --queue medium --app jobs:app"
        crew.start("-m", "forebay", *words.split())

        for number, queue in enumerate(QUEUES):
            ask(address, "/v1/jobs", {"task": "note", "args": [number], "queue": queue})
        for number in (0, 1, 2, 900):
            crew.has_begun(number)

        # What the page shows; that it does so is shown with a browser.
        assert {queue["name"] for queue in json.loads(ask(address, "/v1/queues"))["queues"]} == set(QUEUES)
        shown = json.loads(ask(address, "/v1/workers"))["workers"]
        assert sorted(worker["queues"] for worker in shown) == [["high", "low"], ["medium"]]
        for program in (*workers, scheduler):
            program.send_signal(signal.SIGTERM)
            assert program.ends() == 0
