"""Logins to the dashboard by a real OpenID provider, which demands PKCE and the client's secret."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

from forebay.domain.job_history import EventKind
from forebay.domain.openid_roles import GroupGrant, OpenIdSettings
from forebay.errors import ConfigError
from forebay.service.http.cross_site_check import PAGE_HEADER
from forebay.service.login_provider import LoginFailed
from forebay.service.openid_client import Metadata, OpenIdProvider, check_address, derive
from forebay.service.server import open_listener, serve
from forebay.service.server_security import ListenAddress, ServerSecurity
from forebay.stores.contract.engine import Engine
from forebay.stores.factory import open_engine
from forebay.testing.manual_clock import ManualClock
from tests.service.live_protocols import HERE, running
from tests.service.live_server import PATIENCE
from tests.service.openid_provider import SECRET, providing, sign_in

FROM_US = {PAGE_HEADER: "1"}
GROUPS = tuple(map(GroupGrant.parse, ("ops=operate", "mail=view:mail-*")))
BEGIN = "/v1/login/oidc"

Start = Callable[..., str]


@pytest.fixture
def engine() -> Engine:
    return open_engine("memory://")


@pytest.fixture
def start(engine: Engine) -> Iterator[Start]:
    """Starts a server with a provider of logins, and gives the server's address."""
    with ExitStack() as stack:

        def begin(*, secret: str | None = SECRET, by_userinfo: bool = False, **client: Any) -> str:
            listener = open_listener(HERE)
            home = f"http://127.0.0.1:{listener.getsockname()[1]}"
            provider = stack.enter_context(
                providing(f"{home}{BEGIN}/callback", by_userinfo=by_userinfo, **client)
            )
            openid = OpenIdSettings(
                issuer=provider.issuer,
                client_id="forebay",
                client_secret=secret,
                groups=GROUPS,
                scopes=("openid", "email", "groups"),
                label="Example",
            )
            security = ServerSecurity(requires_keys=True, public_url=home, openid=openid)
            stack.enter_context(running(engine, security, listener))
            return home

        yield begin


@pytest.fixture
def browser() -> Iterator[httpx2.Client]:
    with httpx2.Client(timeout=PATIENCE) as client:
        yield client


def place_of(answer: httpx2.Response) -> str:
    return str(answer.headers["location"])


def logged_in(browser: httpx2.Client, home: str, name: str) -> httpx2.Response:
    """The answer to what the provider has sent the browser back with."""
    return browser.get(place_of(sign_in(browser, home + BEGIN, name)))


@pytest.mark.parametrize("by_userinfo", [False, True], ids=["id-token", "userinfo"])
def test_a_person_logs_in_and_the_log_names_them(
    start: Start, browser: httpx2.Client, engine: Engine, by_userinfo: bool
) -> None:
    home = start(by_userinfo=by_userinfo)
    assert browser.get(f"{home}/v1/login").json() == {"label": "Example", "path": BEGIN}

    done = logged_in(browser, home, "ada")

    assert place_of(done) == f"{home}/dashboard/"
    assert "forebay-login" not in browser.cookies
    session = browser.get(f"{home}/v1/session").json()
    assert (session["name"], session["has_key"]) == ("oidc:ada@example.org", True)
    assert session["grants"] == [{"role": "operate", "queues": "*"}]
    store, reader = engine.store(), engine.reader()
    store.save_queue("mail")  # type: ignore[arg-type]  # a plain text names it
    assert browser.post(f"{home}/v1/queues/mail/pause", headers=FROM_US).status_code == 200
    assert browser.patch(f"{home}/v1/queues/mail", json={"weight": 2}, headers=FROM_US).status_code == 403
    actors = {event.kind: event.actor_name for _, event in reader.audit()}
    assert actors[EventKind.API_KEY_CHANGED] == "oidc:ada@example.org"  # the session has begun
    assert any(
        event.kind is EventKind.QUEUE_CHANGED and event.actor_name == "oidc:ada@example.org"
        for _, event in reader.audit()
    )
    assert browser.delete(f"{home}/v1/session", headers=FROM_US).status_code == 200
    assert browser.get(f"{home}/v1/session").status_code == 401
    store.close()
    reader.close()


@pytest.mark.parametrize("method", ["client_secret_post", "none"])
def test_clients_of_other_kinds_log_in_too(start: Start, browser: httpx2.Client, method: str) -> None:
    secret = None if method == "none" else SECRET
    client = {"token_endpoint_auth_method": method, **({} if secret is None else {"client_secret": secret})}
    home = start(secret=secret, **client)

    logged_in(browser, home, "ada")

    assert browser.get(f"{home}/v1/session").json()["name"] == "oidc:ada@example.org"


def test_an_address_that_is_not_verified_names_no_user(start: Start, browser: httpx2.Client) -> None:
    home = start()

    logged_in(browser, home, "bob")

    session = browser.get(f"{home}/v1/session").json()
    assert session["name"] == "oidc:bob"
    assert session["grants"] == [{"role": "view", "queues": "mail-*"}]


def test_a_person_without_a_group_is_refused(
    start: Start, browser: httpx2.Client, caplog: pytest.LogCaptureFixture
) -> None:
    home = start()

    with caplog.at_level(logging.WARNING, "forebay.service.login"):
        done = logged_in(browser, home, "eve")

    assert place_of(done) == f"{home}/dashboard/?login=refused"
    assert "oidc:eve@example.org is in no group" in caplog.text
    assert browser.get(f"{home}/v1/session").status_code == 401


def test_a_login_is_asked_for_with_pkce_state_and_nonce(start: Start, browser: httpx2.Client) -> None:
    home = start()

    begun = browser.get(home + BEGIN)

    assert begun.status_code == 302
    query = {name: value[0] for name, value in parse_qs(urlsplit(place_of(begun)).query).items()}
    secret = browser.cookies["forebay-login"]
    verifier = derive(secret, "verifier").encode()
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier).digest()).rstrip(b"=").decode()
    assert (query["code_challenge"], query["code_challenge_method"]) == (challenge, "S256")
    assert query["redirect_uri"] == f"{home}{BEGIN}/callback"
    assert (query["response_type"], query["scope"]) == ("code", "openid email groups")
    assert len({secret, query["state"], query["nonce"], verifier.decode()}) == 4
    cookie = begun.headers["set-cookie"]
    assert cookie == f"forebay-login={secret}; HttpOnly; SameSite=Lax; Path=/; Max-Age=600"


def test_the_code_of_one_browser_logs_no_other_in(start: Start, browser: httpx2.Client) -> None:
    home = start()
    stolen = place_of(sign_in(browser, home + BEGIN, "ada"))

    with httpx2.Client(timeout=PATIENCE) as other:
        assert place_of(other.get(stolen)) == f"{home}/dashboard/?login=failed"
        other.get(home + BEGIN)  # it has begun a login of its own
        state = parse_qs(urlsplit(stolen).query)["state"][0]
        mine = derive(other.cookies["forebay-login"], "state")
        for address in (stolen, stolen.replace(state, mine)):  # PKCE holds where the state was forged
            assert place_of(other.get(address)) == f"{home}/dashboard/?login=failed"
        assert other.get(f"{home}/v1/session").status_code == 401


def test_a_code_is_used_once(start: Start, browser: httpx2.Client) -> None:
    home = start()
    address = place_of(sign_in(browser, home + BEGIN, "ada"))
    secret = {"Cookie": f"forebay-login={browser.cookies['forebay-login']}"}

    assert place_of(browser.get(address)) == f"{home}/dashboard/"
    with httpx2.Client(timeout=PATIENCE) as other:
        assert place_of(other.get(address, headers=secret)) == f"{home}/dashboard/?login=failed"


@pytest.mark.parametrize("query", ["error=access_denied", "", "code=x&iss=https://other.example"])
def test_an_answer_without_a_code_of_the_provider_fails(
    start: Start, browser: httpx2.Client, query: str
) -> None:
    home = start()
    browser.get(home + BEGIN)
    state = derive(browser.cookies["forebay-login"], "state")

    done = browser.get(f"{home}{BEGIN}/callback?state={state}&{query}")

    assert place_of(done) == f"{home}/dashboard/?login=failed"


def test_a_provider_that_is_away_is_told_to_the_log(
    engine: Engine, browser: httpx2.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with open_listener(HERE) as silent:
        issuer = f"http://127.0.0.1:{silent.getsockname()[1]}"
    openid = OpenIdSettings(issuer=issuer, client_id="forebay", groups=GROUPS)
    security = ServerSecurity(requires_keys=True, public_url="http://127.0.0.1:1", openid=openid)
    with (
        running(engine, security) as (_, address, _),
        caplog.at_level(logging.ERROR, "forebay.service.login"),
    ):
        begun = browser.get(f"http://{address}{BEGIN}")

    assert place_of(begun) == "http://127.0.0.1:1/dashboard/?login=failed"
    assert issuer in caplog.text


def test_without_a_provider_there_is_no_such_login(engine: Engine, browser: httpx2.Client) -> None:
    with running(engine, ServerSecurity(requires_keys=True)) as (_, address, _):
        assert browser.get(f"http://{address}/v1/login").json() == {"label": None, "path": None}
        for path in (BEGIN, f"{BEGIN}/callback?code=x&state=y"):
            assert browser.get(f"http://{address}{path}").status_code == 403


def test_a_provider_needs_keys_a_public_address_and_tls(engine: Engine) -> None:
    openid = OpenIdSettings(issuer="http://id.example.org", client_id="forebay", groups=GROUPS)
    for security in (ServerSecurity(openid=openid), ServerSecurity(openid=openid, requires_keys=True)):
        with pytest.raises(ConfigError, match="--oidc-issuer needs --require-keys and --public-url"):
            serve(engine, ListenAddress(port=0), version="test", security=security)
    named = ServerSecurity(openid=openid, requires_keys=True, public_url="http://localhost:1")
    with pytest.raises(ConfigError, match="address of https"):
        serve(engine, ListenAddress(port=0), version="test", security=named)
    check_address("http://[::1]:9/")
    for address in ("ftp://localhost", "http://localhost.example.org", "id.example.org"):
        with pytest.raises(ConfigError):
            check_address(address)


KEY = RSAKey.generate_key(2048, parameters={"kid": "one"})
OTHER = RSAKey.generate_key(2048, parameters={"kid": "one"})
RIGHT = {"iss": "https://id", "aud": "forebay", "sub": "ada", "iat": 1_000, "exp": 2_000, "nonce": "n"}


class Verifying(OpenIdProvider):
    """A client whose provider publishes one key, and one of an unknown kind."""

    key: RSAKey | ECKey = KEY

    async def _request_json(self, url: str, kind: type[Any], **_: Any) -> Any:
        unknown = {"kty": "PQC", "kid": "two"}
        return {"keys": [unknown, self.key.as_dict(private=False)]}


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({}, None),
        ({"aud": ["forebay", "other"], "azp": "forebay"}, None),
        ({"exp": 1_450}, None),  # within the leeway
        ({"exp": 1_400}, "expired"),
        ({"iss": "https://other"}, "iss"),
        ({"aud": "other"}, "aud"),
        ({"aud": ["forebay", "other"], "azp": "other"}, "another client"),
        ({"nonce": "m"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"sub": None}, "sub"),
        ({"exp": None}, "exp"),
    ],
)
def test_an_id_token_is_believed_only_whole(claims: dict[str, Any], why: str | None) -> None:
    given = {name: value for name, value in {**RIGHT, **claims}.items() if value is not None}
    token = jwt.encode({"alg": "RS256", "kid": "one"}, given, KEY)
    asyncio.run(verify(token, why))


@pytest.mark.parametrize("kind", ["RS", "PS", "ES"])
def test_id_tokens_are_believed_with_signatures_of_these_kinds(kind: str) -> None:
    key = ECKey.generate_key("P-256", parameters={"kid": "one"}) if kind == "ES" else KEY
    algorithm = f"{kind}256"
    token = jwt.encode({"alg": algorithm, "kid": "one"}, RIGHT, key, algorithms=[algorithm])

    asyncio.run(verify(token, None, key))


def test_a_signature_of_another_key_or_of_none_is_not_believed() -> None:
    forged = jwt.encode({"alg": "RS256", "kid": "one"}, RIGHT, OTHER)
    public = json.dumps(KEY.as_dict(private=False))
    shared = jwt.encode(
        {"alg": "HS256", "kid": "one"}, RIGHT, OctKey.import_key(public), algorithms=["HS256"]
    )
    plain = [json.dumps(part).encode() for part in ({"alg": "none"}, RIGHT)]
    unsigned = ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in plain) + "."
    for token in (forged, shared, unsigned, "nonsense"):
        asyncio.run(verify(token, "cannot be trusted"))


async def verify(token: str, why: str | None, key: RSAKey | ECKey = KEY) -> None:
    settings = OpenIdSettings(issuer="https://id", client_id="forebay", groups=GROUPS)
    provider = Verifying(settings, "https://jobs", ManualClock(now_ms=1_500_000))
    provider.key = key
    metadata = Metadata(issuer="https://id", authorization_endpoint="", token_endpoint="", jwks_uri="")
    if why is None:
        assert (await provider._verify(metadata, token, "n"))["sub"] == "ada"
        return
    with pytest.raises(LoginFailed, match=why):
        await provider._verify(metadata, token, "n")
