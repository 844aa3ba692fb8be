"""Engines from store URLs. The only module that imports engines, and it loads just the requested one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from forebay.clock import Clock
from forebay.errors import ConfigError
from forebay.stores.contract.engine import Engine
from forebay.stores.url_options import option_names
from forebay.stores.url_redaction import redact_url

Durability = Literal["default", "relaxed", "full"]

_SERVICE_SCHEMES: Final = ("http", "https")
_REDIS_SCHEMES: Final = ("redis", "rediss", "valkey", "valkeys", "redis+sentinel", "rediss+sentinel", "unix")
_DURABILITIES: Final[dict[str, Durability]] = {
    "default": "default",
    "relaxed": "relaxed",
    "full": "full",
}
_HOST: Final = re.compile(r"(\[[^\]]*\]|[^:]*)(:[0-9]*)?")
_URL_FORMS: Final = (
    "memory://, sqlite:///relative.db, sqlite:////absolute.db, postgresql://user@host/database, "
    "redis://host:6379/0, https://host"
)
# Form of the address of each kind of store.
_URL_FORM_OF: Final = {
    "memory": "memory://",
    "sqlite": "sqlite:///relative.db or sqlite:////absolute.db",
    "postgresql": "postgresql://user@host/database",
    "postgres": "postgresql://user@host/database",
    "http": "https://host:8080",
    "https": "https://host:8080",
    "redis+sentinel": "redis+sentinel://host:26379/master/0",
    "rediss+sentinel": "rediss+sentinel://host:26379/master/0",
    "unix": "unix:///run/redis.sock?db=0",
}
_ESCAPED: Final = "with %2F, %40, %3A, %3F and %23 for /, @, :, ? and # in a password"
_TLS_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


def open_engine(url: str, *, clock: Clock | None = None, key: str | None = None) -> Engine:
    """Return the engine for a URL; nothing is opened yet. Raises ConfigError for a URL that names none.

    The options of each kind of URL are in `URL_OPTIONS`.

    - `memory://`: a new store each time.
    - `sqlite:///jobs.db`: a path from the current folder; `sqlite:////var/lib/jobs.db`: one from the root.
    - `postgresql://user@host/database`: a server. Options that Forebay does not know are passed to libpq.
    - `redis://user:password@host:6379/0`: a Redis or Valkey server, or a cluster named by some of its nodes
      (`redis://one:7000,two:7000/0`); `rediss://`: with TLS; `redis+sentinel://one,two/master/0`: the master
      that Sentinels name; `unix:///run/redis.sock?db=0`: a server behind a socket.
    - `https://one,two:8443/prefix`: a service on one or several servers, opened with an API `key`.
    """
    parts = _split_url(url)
    shown = redact_url(url)
    _check_shape(url, shown, parts.scheme)
    if key is not None and parts.scheme not in _SERVICE_SCHEMES:
        raise ConfigError(f"a key is for the store behind a service; {shown!r} is none")
    match parts.scheme:
        case "memory":
            return _build_memory_engine(shown, parts, clock)
        case "sqlite":
            return _build_sqlite_engine(shown, parts, clock)
        case "postgresql" | "postgres":
            return _build_postgres_engine(shown, parts)
        case scheme if scheme in _REDIS_SCHEMES:
            return _build_redis_engine(shown, parts)
        case "http" | "https":
            return _build_remote_engine(shown, parts, key)
        case _:
            raise ConfigError(f"{shown!r} names no store that Forebay knows; write one of {_URL_FORMS}")


def _split_url(url: str) -> SplitResult:
    if not isinstance(url, str):
        raise ConfigError(f"a store URL is a text, not {url!r:.60}; write one of {_URL_FORMS}")
    try:
        url.encode()  # some drivers would stumble over half of a surrogate pair, long after this
        return urlsplit(url)
    except ValueError:
        # Not chained: that error quotes the address, with the password in it.
        raise ConfigError(f"{redact_url(url)!r} is not a store URL; write one of {_URL_FORMS}") from None


def _check_shape(url: str, shown: str, scheme: str) -> None:
    """Refuse an address with a known scheme that is malformed: its text would be taken for another host,
    path or file."""
    if url != url.strip() or not url.isprintable():
        raise ConfigError(f"{shown!r} has a space at its end, or a sign that cannot be shown; remove it")
    form = _URL_FORM_OF.get(scheme, f"{scheme}://user:password@host:6379/0")
    if (scheme in _URL_FORM_OF or scheme in _REDIS_SCHEMES) and not url[len(scheme) :].startswith("://"):
        raise ConfigError(f"{shown!r} lacks // behind {scheme}:; write {form}")


def _build_memory_engine(url: str, parts: SplitResult, clock: Clock | None) -> Engine:
    if parts.netloc or parts.path:
        raise ConfigError(f"{url!r}: a memory store has no address; write memory://")
    _parse_options(url, parts, known=())
    from forebay.stores.memory.engine import MemoryEngine

    return MemoryEngine(clock=clock)


def _build_sqlite_engine(url: str, parts: SplitResult, clock: Clock | None) -> Engine:
    path = unquote(parts.path[1:])
    # Two slashes make the first folder a host, and an empty path would be a lost database.
    if parts.netloc or path.rpartition("/")[2] in ("", ".", "..") or "\0" in path:
        raise ConfigError(f"{url!r} names no file; write {_URL_FORM_OF['sqlite']}")
    if path == ":memory:":
        raise ConfigError(f"{url!r}: for a store in the memory of this program write memory://")
    if path.startswith("~"):
        raise ConfigError(f"{url!r}: ~ is not replaced here; write the whole path, sqlite:////home/...")
    options = _parse_options(url, parts, known=option_names("sqlite"))
    durability = _DURABILITIES.get(options.get("durability", "default"))
    if durability is None:
        raise ConfigError(f"{url!r}: durability must be one of {', '.join(_DURABILITIES)}")
    from forebay.stores.sqlite.engine import SqliteEngine

    return SqliteEngine(
        path,
        clock=clock,
        durability=durability,
        lock_timeout_ms=_parse_lock_timeout_ms(url, options),
        is_for_group=_is_for_group(url, options),
    )


def _build_postgres_engine(url: str, parts: SplitResult) -> Engine:
    """Build the engine of a server, which has a clock of its own."""
    _check_server(url, parts)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    if "redis" in dict(pairs):
        raise ConfigError(
            f"{url!r}: a PostgreSQL store takes no redis= parameter; leave it out, PostgreSQL alone does "
            "everything, or use a Redis store, redis://user:password@host:6379/0"
        )
    try:
        from forebay.stores.postgres.engine import PostgresEngine
        from forebay.stores.postgres.server_address import ANSWER_SECONDS, address_of
    except ModuleNotFoundError as exc:
        if exc.name is None or not exc.name.startswith("psycopg"):
            raise
        raise ConfigError(f"{url!r} needs psycopg: pip install 'forebay[postgres]'") from exc
    own_options = {name: value for name, value in pairs if name in option_names("postgresql")}
    driver_options = [(name, value) for name, value in pairs if name not in own_options]
    if len(own_options) + len(driver_options) < len(pairs):
        raise ConfigError(f"{url!r}: an option is given twice")
    query = f"?{urlencode(driver_options, quote_via=quote)}" if driver_options else ""
    wait = _parse_response_timeout(url, own_options.pop("response_timeout", None), ANSWER_SECONDS)
    dsn = f"postgresql://{parts.netloc}{parts.path}{query}"
    return PostgresEngine(address_of(dsn, url, **own_options, response_timeout=wait))


def _build_redis_engine(url: str, parts: SplitResult) -> Engine:
    """Build the engine of a server, which has a clock of its own."""
    scheme, _, topology = parts.scheme.replace("valkey", "redis").partition("+")
    master, path = None, parts.path
    if topology:
        name = re.fullmatch(r"/([^/]+)(/[0-9]*)?", parts.path)
        master, path = (name[1], name[2] or "") if name else (None, "no name")
    if scheme == "unix" and (parts.netloc or path.endswith("/") or not path):
        raise ConfigError(f"{url!r} names no socket; write {_URL_FORM_OF['unix']}")
    if scheme != "unix" and (not _is_server(parts) or not re.fullmatch(r"/?[0-9]*", path)):
        raise ConfigError(
            f"{url!r} is not the address of a server: write redis://user:password@host:6379/0, or "
            f"redis+sentinel://host:26379/master/0, {_ESCAPED}"
        )
    options = dict(_parse_options(url, parts, known=option_names("redis")))
    _check_redis_options(url, options)
    try:
        from forebay.stores.redis.engine import RedisEngine
        from forebay.stores.redis.key_layout import DEFAULT_NAMESPACE, tag
        from forebay.stores.redis.server_address import ANSWER_SECONDS, MAX_FINISHED, RedisAddress
    except ModuleNotFoundError as exc:
        if exc.name is None or not exc.name.startswith("redis"):
            raise
        raise ConfigError(f"{url!r} needs redis-py: pip install 'forebay[redis]'") from exc
    namespace = options.pop("namespace", DEFAULT_NAMESPACE)
    tag(namespace)
    accepts_loss = options.pop("persistence", None) is not None
    max_finished = int(options.pop("max_finished", MAX_FINISHED))
    max_finished_bytes = int(options.pop("max_finished_bytes", 0))
    response_timeout = _parse_response_timeout(url, options.pop("response_timeout", None), ANSWER_SECONDS)
    query = f"?{urlencode(options, quote_via=quote)}" if options else ""
    return RedisEngine(
        RedisAddress(
            url=f"{scheme}://{parts.netloc}{path}{query}",
            master=master,
            namespace=namespace,
            accepts_loss=accepts_loss,
            max_finished=max_finished,
            max_finished_bytes=max_finished_bytes,
            response_timeout=response_timeout,
        )
    )


def _build_remote_engine(url: str, parts: SplitResult, key: str | None) -> Engine:
    """Build the engine of a service, which knows its store's time."""
    if "@" in parts.netloc:
        raise ConfigError(f"{url!r}: there is no user in the address of a service; give it a key instead")
    if not _is_server(parts) or not all(parts.netloc.split(",")):
        raise ConfigError(f"{url!r} is not the address of a service: write https://host:8080")
    options = _parse_options(url, parts, known=option_names("https"))
    _check_tls_files(options)
    try:
        from forebay.stores.remote.engine import RemoteEngine
        from forebay.stores.remote.http_client import ANSWER_SECONDS, ServiceAddress
    except ModuleNotFoundError as exc:
        if exc.name is None or not exc.name.startswith("httpx2"):
            raise
        raise ConfigError(f"{url!r} needs httpx2: pip install 'forebay[remote]'") from exc
    path = parts.path.rstrip("/")
    if key is not None:
        key = key.strip()  # a file ends with a line feed
        if not (key and key.isascii() and key.isprintable()):
            raise ConfigError("this is no API key of a service: it looks like fbk_NAME.SECRET, on one line")
    return RemoteEngine(
        ServiceAddress(
            urls=tuple(f"{parts.scheme}://{host}{path}" for host in parts.netloc.split(",")),
            key=key,
            response_timeout=_parse_response_timeout(url, options.get("response_timeout"), ANSWER_SECONDS),
            ca_certs=options.get("ssl_ca_certs"),
            certfile=options.get("ssl_certfile"),
            keyfile=options.get("ssl_keyfile"),
        )
    )


def _check_redis_options(url: str, options: Mapping[str, str]) -> None:
    if options.get("persistence", "none") != "none":
        raise ConfigError(f"{url!r}: persistence can only be none, which accepts that a server keeps nothing")
    if not re.fullmatch(r"[0-9]{1,9}", options.get("max_finished", "0")):
        raise ConfigError(f"{url!r}: max_finished must be a number of jobs, or 0 to keep them for their time")
    if not re.fullmatch(r"[0-9]{1,15}", options.get("max_finished_bytes", "0")):
        raise ConfigError(f"{url!r}: max_finished_bytes must be a number of bytes, or 0 for any number")
    _check_tls_files(options)


def _check_tls_files(options: Mapping[str, str]) -> None:
    for name in _TLS_FILES:
        path = options.get(name)
        if path is not None and not Path(path).is_file():
            raise ConfigError(f"{name} names {path}, and there is no such file")


def _is_server(parts: SplitResult) -> bool:
    hosts = parts.netloc.rpartition("@")[2].split(",")
    is_unambiguous = "@" not in parts.path and ":" not in parts.path and not parts.fragment
    return all(map(_HOST.fullmatch, hosts)) and is_unambiguous


def _check_server(url: str, parts: SplitResult) -> None:
    """Refuse text that only looks like the address of a server. A password without escapes would be taken
    for a host and a database, and be sent to a name server. Several hosts, or none, are allowed."""
    # libpq ends a password at the first @, and would look up the rest of it as the name of a host.
    if not _is_server(parts) or parts.netloc.count("@") > 1:
        raise ConfigError(
            f"{url!r} is not the address of a server: write postgresql://user:password@host:5432/database, "
            f"{_ESCAPED}"
        )


def _parse_options(url: str, parts: SplitResult, known: tuple[str, ...]) -> Mapping[str, str]:
    given = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(given)
    unknown = sorted(set(options) - set(known))
    if unknown:
        # With an @ after the ? this may be the end of a password with an unescaped ?.
        named = "" if "@" in parts.query else f" {', '.join(unknown)}"
        names = ", ".join(known) or "none"
        raise ConfigError(f"{url!r}: unknown option{named}; known are: {names}")
    if len(options) < len(given):
        raise ConfigError(f"{url!r}: an option is given twice")
    if parts.fragment:
        raise ConfigError(f"{url!r}: a store URL has no part behind #; write %23 for one in a file name")
    return options


def _is_for_group(url: str, options: Mapping[str, str]) -> bool:
    mode = options.get("file_mode", "600")
    if mode not in ("600", "660"):
        raise ConfigError(
            f"{url!r}: file_mode is 600, or 660 for a group that shares the file, not {mode:.60}"
        )
    return mode == "660"


def _parse_lock_timeout_ms(url: str, options: Mapping[str, str]) -> int:
    return round(_parse_seconds(url, "lock_timeout", options.get("lock_timeout", "30"), minimum=0) * 1_000)


def _parse_response_timeout(url: str, text: str | None, default: float) -> float:
    return default if text is None else _parse_seconds(url, "response_timeout", text, minimum=1)


def _parse_seconds(url: str, name: str, text: str, minimum: int) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not minimum <= seconds <= 3_600:  # noqa: PLR2004 - an hour is longer than any useful wait; also refuses NaN
        raise ConfigError(f"{url!r}: {name} must be a number of seconds from {minimum} to 3600, not {text!r}")
    return seconds


def sqlite_version() -> str:
    """Return the version of the library that Python's sqlite3 uses."""
    import sqlite3  # programs on other stores never load it

    return sqlite3.sqlite_version
