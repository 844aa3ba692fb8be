"""The tutorials work as they are written."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2

from tests.docs.tutorials import following
from tests.worker.support import eventually

WITHIN = 60.0


def test_the_tutorial_for_fastapi_works_as_it_is_written(tmp_path: Path) -> None:
    with following("tutorials/fastapi.md", tmp_path) as reader:
        address = f"http://127.0.0.1:{reader.port}/jobs"
        page = httpx2.get(f"{address}/", follow_redirects=True, timeout=WITHIN)
        assert page.status_code == 200

        def ended() -> list[str]:
            found = httpx2.post(f"{address}/v1/jobs/search", json={"limit": 10}, timeout=WITHIN).json()
            states = [job["state"] for job in found["jobs"]]
            return states if set(states) == {"completed"} else []

        # Two were bought: the first ran inside the app, the second in the worker.
        assert len(eventually(ended)) == 2


def test_the_tutorial_for_django_works_as_it_is_written(tmp_path: Path) -> None:
    with following("tutorials/django.md", tmp_path) as reader, httpx2.Client(timeout=WITHIN) as browser:
        site = f"http://127.0.0.1:{reader.port}/admin/"
        eventually(lambda: _answers(browser, site))
        form = browser.get(f"{site}login/")
        token = {"csrfmiddlewaretoken": browser.cookies["csrftoken"]}
        login = {**token, "username": "ada", "password": "change-me", "next": "/admin/"}
        index = browser.post(form.url, data=login, headers={"Referer": str(form.url)}, follow_redirects=True)
        assert "/admin/forebay/job/" in index.text

        def completed() -> str | None:
            page = browser.get(f"{site}forebay/job/?state=completed&task=orders.tasks.send_receipt").text
            found = re.search(r'href="(/admin/forebay/job/[0-9A-Z]+/)"', page)
            return found[1] if found else None

        job = browser.get(f"http://127.0.0.1:{reader.port}{eventually(completed)}")
        assert "mailed to ada@example.com" in job.text


def _answers(browser: httpx2.Client, address: str) -> bool:
    try:
        return browser.get(address).status_code < 500
    except httpx2.TransportError:
        return False
