"""Routes for logins by an OpenID provider, which need no authentication.

The dashboard sends a browser to the provider, which redirects it back with a code; then it is sent to the
dashboard with a session cookie. Errors are logged in detail; the page learns only that a login has failed.
"""

from __future__ import annotations

import logging
import secrets

from litestar import Response, get
from litestar.datastructures import Cookie as ResponseCookie

from forebay.domain.openid_roles import user_name
from forebay.errors import ConfigError, Forbidden
from forebay.service.http.cookies import LOGIN, Cookie
from forebay.service.http.request_context import HttpRequest, service_of
from forebay.service.http.routes.session import session_cookie
from forebay.service.login_provider import CALLBACK, LoginFailed, LoginProvider
from forebay.service.schema.base import ResponseModel

BEGIN = "/v1/login/oidc"
COOKIE_SECONDS = 600

logger: logging.Logger = logging.getLogger("forebay.service.login")
_ANSWER = ("code", "state", "iss", "error")  # query parameters of the provider's redirect


class LoginOptions(ResponseModel, frozen=True, kw_only=True):
    """Ways to log in besides an API key. `label` is the name of the provider, and `path` the start of its
    login; both are null without one."""

    label: str | None = None
    path: str | None = None


@get("/v1/login", tags=["session"])
async def login_options(request: HttpRequest) -> LoginOptions:
    """List the ways to log in besides an API key."""
    provider = service_of(request).logins.provider
    return LoginOptions() if provider is None else LoginOptions(label=provider.settings.label, path=BEGIN)


@get(BEGIN, include_in_schema=False)
async def begin_login(request: HttpRequest) -> Response[None]:
    """Redirect the browser to the login provider."""
    provider = _provider(request)
    secret = secrets.token_urlsafe(32)
    try:
        address = await provider.begin(secret)
    except LoginFailed as exc:
        logger.error("no login can begin: %s", exc)
        return _redirect(f"{provider.home}/dashboard/?login=failed")
    # Lax: a browser sends no Strict cookie after the provider's redirect.
    return _redirect(address, _cookie(request).header_value(secret, same_site="Lax", max_age=COOKIE_SECONDS))


@get(CALLBACK, include_in_schema=False)
async def finish_login(request: HttpRequest) -> Response[None]:
    """Begin a session for the person that the provider names."""
    provider, cookie = _provider(request), _cookie(request)
    home = f"{provider.home}/dashboard/"
    secret = cookie.find(request.headers.get("cookie", ""))
    if secret is None:
        return _redirect(f"{home}?login=failed")
    query = request.query_params
    answer = {name: str(query[name]) for name in _ANSWER if name in query}
    try:
        claims = await provider.finish(secret, answer)
        name, grants = user_name(claims), provider.settings.grants(claims)
        if not grants:
            raise Forbidden(f"{name} is in no group that has a role here")
    except (LoginFailed, ConfigError) as exc:
        logger.warning("a login has failed: %s", exc)
        return _redirect(f"{home}?login=failed")
    except Forbidden as exc:
        logger.warning("a login was refused: %s", exc)
        return _redirect(f"{home}?login=refused")
    session_id = await service_of(request).logins.begin(name, name, grants=grants)
    response = _redirect(home, session_cookie(request).header_value(session_id))
    expired = ResponseCookie(
        cookie.name, cookie.path, "", max_age=0, secure=cookie.is_secure, httponly=True, samesite="lax"
    )
    response.cookies.append(expired)
    return response


def _provider(request: HttpRequest) -> LoginProvider:
    provider = service_of(request).logins.provider
    if provider is None:
        raise Forbidden("this server has no login provider (--oidc-issuer); use an API key")
    return provider


def _cookie(request: HttpRequest) -> Cookie:
    return Cookie.of(request.scope, LOGIN, is_secure=service_of(request).logins.settings.is_secure)


def _redirect(address: str, cookie: str | None = None) -> Response[None]:
    headers = {"Location": address, "Referrer-Policy": "no-referrer"}
    return Response(
        None, status_code=302, headers=headers if cookie is None else {**headers, "Set-Cookie": cookie}
    )


ROUTES = (login_options, begin_login, finish_login)
