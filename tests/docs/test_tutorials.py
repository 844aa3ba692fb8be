"""The tutorials work as they are written."""

from __future__ import annotations

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
