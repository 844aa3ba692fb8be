"""Options of `forebay server` for logins by a provider, and the roles that such a login keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from forebay.domain.job import QueueName
from forebay.service.http.cross_site_check import PAGE_HEADER
from forebay.stores.factory import open_engine
from tests.cli.command_runner import call
from tests.security.measured import server_process
from tests.service.live_server import PATIENCE
from tests.service.openid_provider import SECRET, Provider, providing, sign_in
from tests.worker.support import eventually

# Where browsers reach the server: the tests stand in for the proxy there.
PUBLIC = "http://127.0.0.1:1"
BEGIN = "/v1/login/oidc"
MAIL = QueueName("mail")

Start = Callable[..., str]


@pytest.fixture
def url(tmp_path: Path) -> str:
    found = f"sqlite:///{tmp_path}/jobs.db"
    with closing(open_engine(found).store()) as store:
        store.save_queue(MAIL)
    return found


@pytest.fixture
def provider() -> Iterator[Provider]:
    with providing(f"{PUBLIC}{BEGIN}/callback") as found:
        yield found


@pytest.fixture
def start(url: str, provider: Provider, tmp_path: Path) -> Iterator[Start]:
    """Starts a server with logins by the provider and these options, and gives its address."""
    (tmp_path / "secret").write_text(SECRET)
    login = {
        "--public-url": PUBLIC,
        "--oidc-issuer": provider.issuer,
        "--oidc-client-id": "forebay",
        "--oidc-client-secret": f"file:{tmp_path / 'secret'}",
        "--oidc-group": "ops=operate",
    }
    with ExitStack() as stack:
        yield (
            lambda *options: (
                stack.enter_context(
                    server_process(
                        url, tmp_path, *(word for pair in login.items() for word in pair), *options
                    )
                ).http
            )
        )


@pytest.fixture
def browser() -> Iterator[httpx2.Client]:
    with httpx2.Client(timeout=PATIENCE) as client:
        yield client


def log_in(browser: httpx2.Client, home: str, name: str) -> str:
    """Where the browser is sent after a login."""
    back = str(sign_in(browser, home + BEGIN, name).headers["location"])
    return str(browser.get(back.replace(PUBLIC, home)).headers["location"])


def pause(browser: httpx2.Client, home: str) -> int:
    """The status of the answer to an action of operators."""
    return browser.post(f"{home}/v1/queues/{MAIL}/pause", headers={PAGE_HEADER: "1"}).status_code


def test_the_button_of_the_login_page_says_the_label(start: Start, browser: httpx2.Client) -> None:
    labels = [browser.get(f"{start(*words)}/v1/login").json() for words in ((), ("--oidc-label", "Staff"))]

    assert labels == [{"label": "127.0.0.1", "path": BEGIN}, {"label": "Staff", "path": BEGIN}]


def test_a_scope_is_asked_for_where_the_provider_gives_groups_for_it_alone(
    start: Start, browser: httpx2.Client
) -> None:
    for options, scope, end in (
        ((), "openid email", "?login=refused"),
        (("--oidc-scope", "groups", "--oidc-scope", "email"), "openid email groups", ""),
    ):
        home = start(*options)
        query = parse_qs(urlsplit(browser.get(home + BEGIN).headers["location"]).query)

        assert query["scope"] == [scope]
        assert log_in(browser, home, "ada") == f"{PUBLIC}/dashboard/{end}"
    assert browser.get(f"{home}/v1/session").json()["grants"] == [{"role": "operate", "queues": "*"}]


def test_a_user_who_leaves_a_group_keeps_the_role_until_the_session_ends(
    start: Start, browser: httpx2.Client, provider: Provider, url: str
) -> None:
    home = start("--oidc-scope", "groups")
    log_in(browser, home, "ada")
    assert pause(browser, home) == 200

    provider.change_groups("ada", "staff")

    assert pause(browser, home) == 200
    revoked = call("sessions", "revoke", "--name", "oidc:ada@example.org", "--yes", "--url", url)
    assert revoked.exit_code == 0
    eventually(lambda: pause(browser, home) == 401)
    assert log_in(browser, home, "ada") == f"{PUBLIC}/dashboard/?login=refused"


def test_a_logout_ends_the_session_here_and_not_the_one_at_the_provider(
    start: Start, browser: httpx2.Client
) -> None:
    home = start("--oidc-scope", "groups")
    log_in(browser, home, "ada")
    ended = browser.delete(f"{home}/v1/session", headers={PAGE_HEADER: "1"})
    assert (ended.status_code, pause(browser, home)) == (200, 401)

    answer = browser.get(home + BEGIN)
    while not (address := str(answer.headers["location"])).startswith(PUBLIC):  # no form is shown
        answer = browser.get(httpx2.URL(str(answer.url)).join(address))
    browser.get(address.replace(PUBLIC, home))

    assert pause(browser, home) == 200


def test_groups_come_from_the_claim_and_the_secret_from_the_variable_that_options_name(
    start: Start, browser: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OIDC_SECRET", SECRET)
    groups = ("--oidc-group", "ada@example.org=view", "--oidc-group", "ada@example.org=produce:mail")
    home = start("--oidc-groups-claim", "email", "--oidc-client-secret", "env:OIDC_SECRET", *groups)

    assert log_in(browser, home, "ada") == f"{PUBLIC}/dashboard/"

    assert browser.get(f"{home}/v1/session").json()["grants"] == [
        {"role": "view", "queues": "*"},
        {"role": "produce", "queues": "mail"},
    ]
