"""The parts of the compose file as processes beside each other, and the metrics that autoscalers ask for."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from forebay import Forebay
from tests.deploy.files import DEPLOY, documents, ours_in_compose
from tests.urls import url_of
from tests.worker.support import eventually

WITHIN = 60.0


class Stack:
    """What `docker compose up` would start, on a real PostgreSQL."""

    def __init__(self, url: str, port: int) -> None:
        self.url = url
        self.address = f"http://127.0.0.1:{port}"
        self._port = port

    def words(self, service: str) -> list[str]:
        command: list[str] = ours_in_compose()[service]["command"]
        return [str(self._port) if word == "8080" else word for word in command]

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "forebay", *words],
            cwd=DEPLOY / "app",
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=WITHIN,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def started(self, words: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen(
            [sys.executable, "-m", "forebay", *words],
            cwd=DEPLOY / "app",
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield process
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            assert process.wait(WITHIN) == 0
        finally:
            process.kill()
            process.wait()

    def is_ready(self) -> bool:
        try:
            return httpx2.get(f"{self.address}/health/ready", timeout=WITHIN).status_code == 200
        except httpx2.TransportError:
            return False

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "FOREBAY_URL": self.url, "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    made = Stack(url_of("postgresql", tmp_path), port)
    with ExitStack() as parts:
        made.run(*made.words("migrate"))
        parts.enter_context(made.started(made.words("worker")))
        parts.enter_context(made.started(made.words("server")))
        eventually(made.is_ready)
        yield made


@pytest.mark.shows("R-SDK-16", "R-SDK-17")
def test_the_parts_of_the_compose_file_work_together_and_stop_in_order(stack: Stack) -> None:
    found = re.search(r"fbk_\S+", stack.run("keys", "create", "ops", "--allow", "admin"))
    assert found is not None

    assert httpx2.get(f"{stack.address}/v1/queues", timeout=WITHIN).status_code == 401
    with Forebay(stack.address, api_key=found[0]) as shop:
        job = shop.enqueue("receipt", args=[7], queue="mail")
        assert job.result(timeout=WITHIN) == "receipt of order 7 sent"


def queries() -> list[str]:
    """What the autoscalers ask Prometheus for."""
    [keda] = documents(DEPLOY / "autoscaling" / "keda.yaml")
    [adapter] = documents(DEPLOY / "autoscaling" / "prometheus-adapter.yaml")
    rules = adapter["rules"]["external"]
    trigger_queries = [trigger["metadata"]["query"] for trigger in keda["spec"]["triggers"]]
    return [
        *trigger_queries,
        *(rule["seriesQuery"] for rule in rules),
        *(rule["metricsQuery"] for rule in rules),
    ]


@pytest.mark.shows("R-WORK-48")
def test_the_metrics_that_autoscalers_ask_for_are_shown_by_a_server(stack: Stack) -> None:
    found = re.search(r"fbk_\S+", stack.run("keys", "create", "prometheus", "--allow", "view"))
    assert found is not None
    with Forebay(stack.url) as app:
        app.enqueue("receipt", args=[1], queue="mail", delay=3_600)

    shown = httpx2.get(
        f"{stack.address}/metrics", headers={"Authorization": f"Bearer {found[0]}"}, timeout=WITHIN
    ).text

    series = re.findall(r"([a-z_]+)\{([^}]*)\}", " ".join(queries()))
    assert len(series) == 4
    for name, conditions in series:
        lines = [line for line in shown.splitlines() if line.startswith(f"{name}{{")]
        assert lines, name
        for label, value in re.findall(r'([a-z]+)="([^"]*)"', conditions):
            # Where a pod runs is added by Prometheus.
            if label != "namespace":
                assert any(f'{label}="{value}"' in line for line in lines), (name, label, value)


def test_the_external_metric_of_the_autoscaler_is_the_one_that_the_adapter_makes() -> None:
    [hpa] = documents(DEPLOY / "autoscaling" / "hpa.yaml")
    [adapter] = documents(DEPLOY / "autoscaling" / "prometheus-adapter.yaml")
    made: list[Any] = [rule["name"]["as"] for rule in adapter["rules"]["external"]]

    assert [one["external"]["metric"]["name"] for one in hpa["spec"]["metrics"]] == made
