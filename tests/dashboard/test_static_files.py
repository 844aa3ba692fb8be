"""The files of the page before the service."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from forebay.dashboard.static_files import StaticFiles


class Answered(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


async def service(scope: Any, receive: Any, send: Any) -> None:
    """What stands behind the page."""
    await send({"type": "http.response.start", "status": 299, "headers": []})
    await send({"type": "http.response.body", "body": b"the service", "more_body": False})


def ask(folder: Path, path: str, method: str = "GET", **headers: str) -> Answered:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    request_headers = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "path": path, "method": method, "headers": request_headers}
    asyncio.run(StaticFiles(service, folder)(scope, receive, send))
    start, body = sent
    return Answered(
        start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, body["body"]
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html>")
    (tmp_path / "assets" / "page-1a2b.js").write_text("let one = 1;")
    return tmp_path


@pytest.mark.shows("R-HTTP-45")
@pytest.mark.parametrize(
    "path", ["/dashboard/", "/dashboard/jobs", "/dashboard/queues/mail", "/dashboard/queues/mail.daily"]
)
def test_every_view_is_the_one_page(folder: Path, path: str) -> None:
    answer = ask(folder, path)

    assert (answer.status, answer.body) == (200, b"<!doctype html>")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"


def test_the_page_loads_nothing_from_elsewhere_and_stands_in_no_frame(folder: Path) -> None:
    policy = ask(folder, "/dashboard/").headers["content-security-policy"]

    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


def test_assets_are_kept_for_good_and_packed_for_who_can_unpack(folder: Path) -> None:
    plain = ask(folder, "/dashboard/assets/page-1a2b.js")
    packed = ask(folder, "/dashboard/assets/page-1a2b.js", accept_encoding="br, gzip")

    assert plain.body == gzip.decompress(packed.body) == b"let one = 1;"
    assert packed.headers["content-encoding"] == "gzip"
    assert "immutable" in plain.headers["cache-control"]
    assert plain.headers["content-type"] == "text/javascript; charset=utf-8"


def test_what_a_browser_has_is_not_sent_again(folder: Path) -> None:
    tag = ask(folder, "/dashboard/").headers["etag"]

    again = ask(folder, "/dashboard/", if_none_match=tag)

    assert (again.status, again.body) == (304, b"")


def test_the_root_leads_to_the_page_and_all_else_to_the_service(folder: Path) -> None:
    assert [ask(folder, path).headers["location"] for path in ("/", "/dashboard")] == ["/dashboard/"] * 2
    assert ask(folder, "/v1/jobs").body == ask(folder, "/dashboards").body == b"the service"
    assert ask(folder, "/dashboard/", method="POST").body == b"the service"


@pytest.mark.parametrize(
    "path",
    [
        "/dashboard/assets/none.js",
        "/dashboard/none.svg",
        "/dashboard/../pages.py",
        "/dashboard/..%2fpages.py",
    ],
)
def test_nothing_but_the_files_of_the_page_is_given_out(folder: Path, path: str) -> None:
    assert ask(folder, path).status == 404


def test_a_page_that_was_not_built_says_so(tmp_path: Path) -> None:
    answer = ask(tmp_path / "nothing", "/dashboard/")

    assert answer.status == 503
    assert b"make dashboard" in answer.body


def test_head_is_answered_without_a_body(folder: Path) -> None:
    answer = ask(folder, "/dashboard/", method="HEAD")

    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-length"] == "15"
