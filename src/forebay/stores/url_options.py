"""Options of store URLs, for each engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

EngineName: TypeAlias = Literal["sqlite", "postgresql", "redis", "https"]


class UrlOption(NamedTuple):
    """Option of a store URL. `default` is the value without it, for people to read."""

    name: str
    default: str
    meaning: str


_TLS_OPTIONS: Final = (
    UrlOption("ssl_ca_certs", "those of the system", "a file of certificates that sign the server's"),
    UrlOption("ssl_certfile", "none", "the certificate that this client shows"),
    UrlOption("ssl_keyfile", "none", "the private key of that certificate"),
    UrlOption("ssl_cert_reqs", "`required`", "whether the server's certificate is checked"),
    UrlOption("ssl_check_hostname", "`true`", "whether it has to name the host that was asked for"),
)
_RESPONSE_TIMEOUT: Final = "seconds without a word after which the server counts as away, 1 to 3600"

# The only list: an option that is not here is refused. PostgreSQL passes others on to its library.
URL_OPTIONS: Final[Mapping[EngineName, tuple[UrlOption, ...]]] = {
    "sqlite": (
        UrlOption(
            "durability",
            "`default`",
            "`default`: an accepted job outlives a power failure; `full`: what became of it does too; "
            "`relaxed`: the last moments may be lost with the power, not with the program",
        ),
        UrlOption("lock_timeout", "30", "seconds to wait for other writers, 0 to 3600"),
        UrlOption(
            "file_mode",
            "600",
            "permissions of a new file: `600` for its user, `660` for its group too; whatever the umask",
        ),
    ),
    "postgresql": (
        UrlOption("schema", "`forebay`", "the schema that our tables are in"),
        UrlOption(
            "pooler", "`session`", "`transaction` behind a pooler that gives connections away in between"
        ),
        UrlOption(
            "notify", "`on`", "`off`: workers are not woken by the server and look for jobs by themselves"
        ),
        UrlOption("response_timeout", "35", _RESPONSE_TIMEOUT),
    ),
    "redis": (
        UrlOption("namespace", "`forebay`", "what all of our keys begin with"),
        UrlOption(
            "max_finished",
            "10000",
            "how many final jobs of a queue are kept; 0: all, for the time of their queue",
        ),
        UrlOption("max_finished_bytes", "0", "how much memory final jobs may take; 0: any"),
        UrlOption("persistence", "", "`none` accepts a server that keeps nothing when it stops"),
        UrlOption("response_timeout", "30", _RESPONSE_TIMEOUT),
        UrlOption("db", "0", "the number of the database, where the address has no other place for it"),
        *_TLS_OPTIONS,
    ),
    "https": (
        UrlOption("response_timeout", "30", _RESPONSE_TIMEOUT),
        *_TLS_OPTIONS[:3],
    ),
}


def option_names(engine: EngineName) -> tuple[str, ...]:
    """Return the names of all options of an engine."""
    return tuple(option.name for option in URL_OPTIONS[engine])
