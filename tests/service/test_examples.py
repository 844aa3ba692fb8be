"""The worker in shell runs jobs."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from tests.service.serving import PATIENCE, Served
from tests.worker.support import eventually

WORKER = Path(__file__).parents[2] / "examples" / "http_worker" / "worker.sh"


def test_a_worker_in_shell_runs_jobs(plain: Served) -> None:
    queue = plain.queue()
    environment = {**os.environ, "SERVER": plain.address, "QUEUE": queue}
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
