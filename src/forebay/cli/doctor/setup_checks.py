"""Checks of the settings, the app, the store and its engine."""

from __future__ import annotations

from collections.abc import Iterator

from forebay.app.app import Forebay
from forebay.cli.app_loader import load_app
from forebay.cli.doctor.check_result import DO_NOT_START, CheckResult
from forebay.cli.doctor.store_content_checks import check_contents
from forebay.cli.settings import Settings, unknown_variables
from forebay.cli.store_session import StoreSession
from forebay.errors import Forbidden
from forebay.payload.masking import MASK, is_secret
from forebay.stores.factory import open_engine
from forebay.stores.url_redaction import redact_url


def check_settings(settings: Settings) -> Iterator[CheckResult]:
    """Report the settings and their sources."""
    for name, setting in settings.found.items():
        yield CheckResult(
            about="settings", message=f"{name} = {_redact_setting(name, setting.value)} by {setting.source}"
        )
    if not settings.found:
        yield CheckResult(about="settings", message="nothing is set; the defaults apply")
    for name in unknown_variables():
        yield CheckResult(
            about="settings",
            message=f"{name} is set in the environment and is not a setting",
            level="note",
            todo="see docs/reference/settings.md for the names",
        )


def _redact_setting(name: str, value: object) -> object:
    if is_secret(name):
        return MASK
    return redact_url(str(value)) if name == "url" else value


def check_app(settings: Settings) -> Iterator[CheckResult]:
    """Check that the app can be imported; report its tasks and queues."""
    named = settings.get("app")
    if named is not None:
        app = load_app(named)
        tasks = {app.registry[name].name for name in app.registry}  # a task can have several names
        yield CheckResult(about="app", message=f"{named} has {len(tasks)} tasks on {', '.join(app.queues())}")
        yield from check_app_store(settings, app)


def check_app_store(settings: Settings, app: Forebay) -> Iterator[CheckResult]:
    """Check that commands use the store of the app; a worker ignores the setting `url`."""
    kind, url = settings.store
    if kind == "url" and open_engine(url).location != app.engine.location:
        named = settings.get("app")
        yield CheckResult(
            about="store",
            message=f"url is {redact_url(url)} by {settings.found['url'].source}, and {named} uses "
            "another store",
            level="problem",
            todo=f"leave out url, so that commands use the store of {named}",
            see=DO_NOT_START,
        )


def check_store(session: StoreSession, *, quick: bool) -> Iterator[CheckResult]:
    """Check the store and its contents."""
    if session.engine.features.runs_maintenance:
        yield CheckResult(
            about="store", message=f"{session.name} answers; it is a service, which maintains its store"
        )
    else:
        yield from check_engine(session)
    try:
        yield from check_contents(session, quick=quick)
    except Forbidden as exc:
        yield CheckResult(
            about="key",
            message=str(exc),
            level="note",
            todo="use a key that has the role view for all queues",
            see="401-and-403",
        )


def check_engine(session: StoreSession) -> Iterator[CheckResult]:
    """Check the schema and the permission to write."""
    schema = session.store.migrate()
    engine = session.engine.features.name
    # The URL may come from an app, or be relative to this folder; the full location identifies the store.
    name = (
        session.name
        if session.engine.location in session.name
        else f"{session.name} ({session.engine.location})"
    )
    yield CheckResult(about="store", message=f"{name} answers; engine {engine}, schema {schema}")
    # A real write that nothing reads: an empty transaction would succeed on a full disk.
    session.store.acquire_maintenance("doctor", 0)
    yield CheckResult(about="permissions", message="this user may write")
