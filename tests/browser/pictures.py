"""Take the pictures of the dashboard that the docs show: `make pictures`, or some of them: `ARGS=workers`.

The sample runs for some minutes from a copy in a folder of its own, so that no picture shows where a
developer keeps their checkout.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, Final
from urllib.request import Request, urlopen

from playwright.sync_api import Page, expect

from tests.browser.scene import Sight, browsing

ROOT: Final = Path(__file__).resolve().parents[2]
IMAGES: Final = ROOT / "docs" / "images"
SECONDS: Final = 150
VIEWS: Final = {
    "overview": "",
    "queues": "queues",
    "queue": "queues/mail",
    "jobs": "jobs",
    "job": "jobs/{dead}",
    "workflow": "jobs/{flow}",
    "dead-letters": "dead",
    "schedules": "schedules",
    "schedule-edit": "schedules",
    "workers": "workers",
    "alerts": "alerts?show=all",
    "audit": "audit",
    "keys": "keys",
    "configuration": "configuration",
}


@contextmanager
def sampling() -> Iterator[str]:
    """The sample from a copy of all that it needs; the address of its server."""
    home = Path(tempfile.gettempdir()) / "app"
    home.mkdir()
    try:
        shutil.copytree(ROOT / "src" / "forebay", home / "forebay")
        shutil.copy(ROOT / "examples" / "sample" / "main.py", home)
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [sys.executable, "main.py"]
        with subprocess.Popen(command, cwd=home, env=env, stdout=subprocess.PIPE, text=True) as sample:
            try:
                address = next(_address(line) for line in sample.stdout or () if "the dashboard is" in line)
                # It tells of each job, and a full pipe would stop it.
                Thread(target=lambda: list(sample.stdout or ()), daemon=True).start()
                yield address
            finally:
                sample.terminate()
                sample.wait()
    finally:
        shutil.rmtree(home)


def _address(line: str) -> str:
    return line.rpartition(" ")[2].strip().removesuffix("/dashboard/")


def ask(method: str, address: str, body: object) -> Any:
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(address, json.dumps(body).encode(), headers, method=method)) as answer:  # noqa: S310 - ours
        return json.load(answer)


def prepare(base: str) -> dict[str, str]:
    """Let there be something to see; the ids that addresses need."""
    ask("POST", f"{base}/v1/keys", {"name": "grafana", "grants": ["view"]})
    ask("POST", f"{base}/v1/keys", {"name": "shop", "grants": ["produce:mail", "produce:money"]})
    ask("PUT", f"{base}/v1/limits", {"scope": "queue:money", "concurrency": 4, "rate": 20, "burst": 40})
    time.sleep(SECONDS)
    dead = ask("POST", f"{base}/v1/dead-letters/search", {"limit": 1})
    [worst, *_] = ask("POST", f"{base}/v1/dead-letters/failure-groups", {})["groups"]
    ask(
        "POST",
        f"{base}/v1/dead-letters/gradual-revives",
        {"group": worst["id"], "first": 2, "every_seconds": 5, "stop_percent": 60},
    )
    ended = {"tasks": ["main.total"], "states": ["completed"]}
    flow = ask("POST", f"{base}/v1/jobs/search", {"limit": 1, "where": ended})
    return {"dead": dead["jobs"][0]["id"], "flow": flow["jobs"][0]["id"]}


def settle(page: Page, name: str) -> None:
    """Wait until all that the view asks for is there."""
    page.locator(".link.live").wait_for()
    expect(page.get_by_text("Loading…")).to_have_count(0)
    if name == "workflow":
        page.locator(".graph").scroll_into_view_if_needed()
    if name == "schedule-edit":
        page.get_by_role("button", name="Edit weekly-digest").click()
        page.locator(".preview li").first.wait_for()
    page.wait_for_timeout(2_500)  # some samples of the live charts


def pack() -> None:
    """A third of the bytes, where there is the tool for it."""
    tool = shutil.which("pngquant")
    if tool:
        pictures = sorted(map(str, IMAGES.glob("dashboard-*.png")))
        subprocess.run([tool, "--force", "--skip-if-larger", "--ext", ".png", "256", *pictures], check=False)


def main() -> int:
    wanted = sys.argv[1:] or list(VIEWS)
    if unknown := set(wanted) - set(VIEWS):
        raise SystemExit(f"there is no view {', '.join(sorted(unknown))}, only {', '.join(VIEWS)}")
    with sampling() as base, browsing() as browser:
        ids = prepare(base)
        for scheme in ("light", "dark"):
            sight = Sight(browser, base, color_scheme=scheme)
            for name in wanted:
                page = sight.open(VIEWS[name].format(**ids))
                settle(page, name)
                page.screenshot(path=IMAGES / f"dashboard-{name}-{scheme}.png")
            sight.close()
    pack()
    return 0


if __name__ == "__main__":
    sys.exit(main())
