"""A real OpenID provider, and a browser that logs in there."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

import httpx2

from tests.service.live_server import PATIENCE
from tests.service.node import node

HERE: Final = Path(__file__).parent
# `make dashboard` fetches it with the packages of the page.
LIBRARY: Final = HERE.parent.parent / "dashboard/node_modules/oidc-provider/lib/index.js"
SECRET: Final = "s3cret: +/&"  # noqa: S105 - of a provider that lasts as long as a test
PEOPLE: Final = {
    "ada": {"email": "ada@example.org", "email_verified": True, "groups": ["ops", "staff"]},
    "bob": {"email": "ada@example.org", "email_verified": False, "groups": ["mail"]},
    "eve": {"email": "eve@example.org", "email_verified": True, "groups": ["staff"]},
}
_FORM: Final = re.compile(r'<form[^>]*action="([^"]+)"')


class Provider:
    """A provider that runs."""

    def __init__(self, issuer: str, process: subprocess.Popen[str]) -> None:
        self.issuer = issuer
        self._process = process

    def change_groups(self, name: str, *groups: str) -> None:
        """Let a person be in these groups from now on."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({name: {**PEOPLE[name], "groups": groups}}) + "\n")
        self._process.stdin.flush()
        assert any(line == "done\n" for line in self._process.stdout)


@contextmanager
def providing(redirect_uri: str, *, by_userinfo: bool = False, **client: Any) -> Iterator[Provider]:
    """A provider while the block lasts. Claims are in the ID token, or with `by_userinfo` asked for."""
    settings = {
        "redirect_uri": redirect_uri,
        "client": client or {"client_secret": SECRET},
        "by_userinfo": by_userinfo,
        "people": PEOPLE,
    }
    command = [node(), str(HERE / "openid_provider.mjs"), str(LIBRARY), json.dumps(settings)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        issuer = next((line.strip() for line in process.stdout if line.startswith("http://")), "")
        assert issuer, "the provider has not started"
        try:
            yield Provider(issuer, process)
        finally:
            process.stdin.close()  # then it ends
            process.wait(PATIENCE)


def sign_in(browser: httpx2.Client, address: str, name: str) -> httpx2.Response:
    """Follow a login from its beginning to where the provider sends the browser: that is not asked yet."""
    answer = browser.get(address)
    while True:
        if answer.is_redirect:
            address = urljoin(str(answer.url), answer.headers["location"])
            if "/v1/login/oidc/callback" in address or "/dashboard/" in address:
                return answer
            answer = browser.get(address)
        else:
            form = _FORM.search(answer.text)
            assert form is not None, answer.text
            fields = {"prompt": "login", "login": name, "password": "x"}
            answer = browser.post(urljoin(str(answer.url), form[1]), data=fields)
