"""OpenID Connect client: authorization code with PKCE, state and nonce. Needs `forebay[oidc]`.

A login begins on one server and may end on another, so no server remembers it. The browser has one secret in
a cookie; state, nonce and the PKCE verifier are derived from it. The state in a URL reveals nothing of the
secret, so a code that was stolen or injected there is useless.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet, import_key

from forebay.clock import Clock
from forebay.domain.openid_roles import Claims, OpenIdSettings, has_groups
from forebay.errors import ConfigError
from forebay.prepared_types import prepare_type
from forebay.service.login_provider import CALLBACK, LoginFailed
from forebay.service.loopback import is_loopback

TIMEOUT_SECONDS: Final = 10.0
MAX_BYTES: Final = 1_048_576
MAX_CONCURRENT: Final = 4
MAX_WAITING: Final = 100
LEEWAY_SECONDS: Final = 60
METADATA_CACHE_SECONDS: Final = 600.0
# Asymmetric algorithms only: with a shared key the client secret could sign, and "none" signs nothing.
ALGORITHMS: Final = [f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)]


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """Provider metadata, as far as this client needs it."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Token response of the provider."""

    id_token: str
    access_token: str


class OpenIdProvider:
    """OpenID provider of a server, which browsers reach at `public_url`."""

    def __init__(self, settings: OpenIdSettings, public_url: str, clock: Clock) -> None:
        self.settings = settings
        self.home: str = public_url.rstrip("/")
        self._clock = clock
        self._metadata_cache: tuple[Metadata, float] | None = None
        self._request_slots = asyncio.Semaphore(MAX_CONCURRENT)
        self._waiting = 0

    async def begin(self, secret: str) -> str:
        """Return the URL of the provider at which a login with this secret begins."""
        metadata = await self._load_metadata()
        challenge = hashlib.sha256(derive(secret, "verifier").encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self.home + CALLBACK,
            "scope": " ".join(self.settings.scopes),
            "state": derive(secret, "state"),
            "nonce": derive(secret, "nonce"),
            "code_challenge": _base64url(challenge),
            "code_challenge_method": "S256",
        }
        joint = "&" if urlsplit(metadata.authorization_endpoint).query else "?"
        return f"{metadata.authorization_endpoint}{joint}{urlencode(query)}"

    async def finish(self, secret: str, answer: Mapping[str, str]) -> Claims:
        """Return the claims about a person, from the provider's redirect; raises LoginFailed."""
        if not hmac.compare_digest(derive(secret, "state").encode(), answer.get("state", "").encode()):
            raise LoginFailed("the answer belongs to no login of this browser")
        if "code" not in answer:
            raise LoginFailed(f"the provider answered {answer.get('error', 'without a code')!r:.100}")
        metadata = await self._load_metadata()
        if answer.get("iss", metadata.issuer) != metadata.issuer:
            raise LoginFailed("the answer is of another provider")
        tokens = await self._exchange_code(metadata, answer["code"], derive(secret, "verifier"))
        claims = await self._verify(metadata, tokens.id_token, derive(secret, "nonce"))
        if not has_groups(claims, self.settings.groups_claim) and metadata.userinfo_endpoint is not None:
            return await self._add_user_info(metadata.userinfo_endpoint, tokens.access_token, claims)
        return claims

    async def _load_metadata(self) -> Metadata:
        if (
            self._metadata_cache is not None
            and self._clock.monotonic() - self._metadata_cache[1] < METADATA_CACHE_SECONDS
        ):
            return self._metadata_cache[0]
        issuer = self.settings.issuer.rstrip("/")
        found: Metadata = await self._request_json(f"{issuer}/.well-known/openid-configuration", Metadata)
        if found.issuer.rstrip("/") != issuer:
            raise LoginFailed(f"the provider calls itself {found.issuer!r:.200}, not {issuer!r:.200}")
        self._metadata_cache = (found, self._clock.monotonic())
        return found

    async def _exchange_code(self, metadata: Metadata, code: str, verifier: str) -> Tokens:
        client, secret = self.settings.client_id, self.settings.client_secret
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.home + CALLBACK,
            "code_verifier": verifier,
        }
        headers = {}
        if secret is None:
            form["client_id"] = client
        elif "client_secret_basic" in metadata.token_endpoint_auth_methods_supported:
            pair = f"{quote(client, safe='')}:{quote(secret, safe='')}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        else:
            form |= {"client_id": client, "client_secret": secret}
        tokens: Tokens = await self._request_json(metadata.token_endpoint, Tokens, form=form, headers=headers)
        return tokens

    async def _verify(self, metadata: Metadata, token: str, nonce: str) -> Claims:
        # The keys are fetched for each login: logins are rare, and a provider may rotate keys at any time.
        keys = _parse_keys((await self._request_json(metadata.jwks_uri, dict[str, Any])).get("keys"))
        client = self.settings.client_id
        registry = jwt.JWTClaimsRegistry(
            now=self._clock.now_ms() // 1_000,
            leeway=LEEWAY_SECONDS,
            iss={"essential": True, "value": metadata.issuer},
            aud={"essential": True, "value": client},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
            nonce={"essential": True, "value": nonce},
        )
        try:
            claims: Claims = jwt.decode(token, keys, algorithms=ALGORITHMS).claims
            registry.validate(dict(claims))
        except (JoseError, ValueError) as exc:
            raise LoginFailed(f"the ID token cannot be trusted: {exc}") from exc
        if claims.get("azp", client) != client:
            raise LoginFailed("the ID token is for another client")
        return claims

    async def _add_user_info(self, url: str, token: str, claims: Claims) -> Claims:
        more = await self._request_json(url, dict[str, Any], headers={"Authorization": f"Bearer {token}"})
        if more.get("sub") != claims["sub"]:
            raise LoginFailed("the provider tells about another person than the ID token")
        return {**more, **claims}

    async def _request_json(
        self, url: str, kind: type[Any], *, form: dict[str, str] | None = None, headers: Any = None
    ) -> Any:
        # Browsers without a login can cause this, so threads and waiting requests are bounded.
        if self._waiting >= MAX_WAITING:
            raise LoginFailed("too many logins at once")
        self._waiting += 1
        try:
            async with self._request_slots:
                return await asyncio.to_thread(_fetch, url, kind, form, headers or {})
        finally:
            self._waiting -= 1


class _NoRedirect(HTTPRedirectHandler):
    """Handler that follows no redirect: a code or secret goes only to the address that the provider has
    published."""

    def redirect_request(self, *_: Any) -> None:
        return None


_opener: Final = build_opener(_NoRedirect)


def derive(secret: str, purpose: str) -> str:
    """Return 256 bits derived from the secret, which reveal nothing of it."""
    return _base64url(hmac.new(secret.encode(), purpose.encode(), hashlib.sha256).digest())


def check_address(url: str) -> None:
    """Raise ConfigError for a URL whose transport would expose secrets."""
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        return
    raise ConfigError(f"a provider of logins has an address of https, and not {url!r:.200}")


def _base64url(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


def _fetch(url: str, kind: type[Any], form: dict[str, str] | None, headers: dict[str, str]) -> Any:
    try:
        check_address(url)
        data = None if form is None else urlencode(form).encode()
        request = Request(url, data=data, headers={"Accept": "application/json", **headers})  # noqa: S310 - checked
        with _opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
            return msgspec.json.decode(answer.read(MAX_BYTES), type=prepare_type(kind))
    except HTTPError as exc:
        with exc:
            raise LoginFailed(f"{url} answered {exc.code}: {exc.read(500)!r}") from exc
    except (OSError, ValueError, ConfigError) as exc:
        raise LoginFailed(f"{url} gave no answer that can be used: {exc}") from exc


def _parse_keys(jwks: Any) -> KeySet:
    """Return the keys of a JWKS that can be parsed; keys of unknown types are left out."""
    keys = []
    for jwk in jwks if isinstance(jwks, list) else ():
        try:
            keys.append(import_key(jwk))
        except (JoseError, ValueError, KeyError, TypeError):
            continue
    return KeySet(keys)
