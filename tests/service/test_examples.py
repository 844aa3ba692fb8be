"""The workers in shell and in JavaScript run jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.service.curl import search_path, stand_in
from tests.service.live_server import PATIENCE, Served
from tests.service.node import node
from tests.worker.support import eventually

EXAMPLES = Path(__file__).parents[2] / "examples"
WORKER = EXAMPLES / "http_worker" / "worker.sh"
JAVASCRIPT = EXAMPLES / "javascript_worker" / "worker.mjs"


def test_a_worker_in_shell_runs_jobs(plain: Served, tmp_path: Path) -> None:
    queue = plain.queue()
    environment = {
        **os.environ,
        "SERVER": plain.address,
        "QUEUE": queue,
        "PATH": search_path(tmp_path),
    }
    with subprocess.Popen(
        ["sh", str(WORKER)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as worker:
        try:
            good, bad = (plain.enqueue(queue, task="shout", args=[word]) for word in ("hello you", 7))
            eventually(lambda: all(plain.job(job_id)["is_final"] for job_id in (good, bad)))
            states = [plain.job(job_id)["state"] for job_id in (good, bad)]
            result = plain.done("GET", f"/v1/jobs/{good}/result")["result"]
        finally:
            os.killpg(worker.pid, signal.SIGTERM)  # with the curl that waits
            worker.communicate(timeout=PATIENCE)

    assert (states, result) == (["completed", "dead"], "HELLO YOU")


@pytest.mark.shows("R-EXT-01")
def test_a_worker_in_javascript_runs_jobs_hears_of_cancels_and_ends_in_order(plain: Served) -> None:
    queue = plain.queue()
    environment = {**os.environ, "SERVER": plain.address, "QUEUE": queue}
    with subprocess.Popen(
        [node(), str(JAVASCRIPT)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as worker:
        try:
            good, bad = (plain.enqueue(queue, task="shout", args=[word]) for word in ("hello you", 7))
            fails = plain.enqueue(queue, task="rest", max_retries=0)  # without its argument
            stops = plain.enqueue(queue, task="rest", args=[3_600], lease_seconds=3)
            eventually(lambda: plain.job(stops)["state"] == "running")
            plain.done("POST", f"/v1/jobs/{stops}/cancel", {"reason": "enough"})
            jobs = (good, bad, fails, stops)
            eventually(lambda: all(plain.job(job_id)["is_final"] for job_id in jobs))
        finally:
            worker.terminate()
            output, complaints = worker.communicate(timeout=PATIENCE)

    states = [plain.job(job_id)["state"] for job_id in jobs]
    assert states == ["completed", "dead", "dead", "cancelled"]
    assert plain.done("GET", f"/v1/jobs/{good}/result")["result"] == "HELLO YOU"
    assert (worker.returncode, complaints) == (0, b"")
    assert {line.split()[0].decode() for line in output.splitlines()} == set(jobs)


def test_what_stands_in_for_curl_asks_and_says_what_failed(plain: Served, tmp_path: Path) -> None:
    queue, curl = plain.queue(), stand_in(tmp_path)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(curl), *words], capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    body = json.dumps({"task": "t", "queue": queue})
    answer = run("-sf", f"{plain.address}/v1/jobs", "-H", "Idempotency-Key: k", "-d", body)
    again = plain.post("/v1/jobs", {"task": "t", "queue": queue, "idempotency_key": "k"})
    failed = run("--silent", "--fail", "--show-error", f"{plain.address}/v1/jobs/unknown")

    assert json.loads(answer.stdout)["id"] == again.json()["id"]
    assert (failed.returncode, failed.stdout) == (22, "")
    assert "404" in failed.stderr
