"""The tables of docs/reference/settings.md: settings, settings of a queue, options of addresses.

The rest of that page is written by hand. A table stands between two marks, and is written again between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import click
import msgspec

from forebay.cli.settings import DEFAULT_URL, PREFIX, SETTING_TYPES
from forebay.domain.queue import QueueSettings
from forebay.stores.url_options import URL_OPTIONS
from tools.reference_pages.command_line import commands, default_of
from tools.reference_pages.markdown import code, table

_MARKS: Final = "<!-- made by make reference: {0} -->{1}<!-- end of {0} -->"
# Settings without a flag: meaning and default.
MEANINGS: Final[Mapping[str, tuple[str, str]]] = {
    "url": ("The store of commands.", code(DEFAULT_URL)),
    "api_key": ("The API key for a `url` that is a [service](../guide/remote.md) (`https://`).", "none"),
    "app": ("The app, as `package.module:name`, imported from the present folder.", "none"),
    "actor": ("The name of the user of commands in the history.", "`cli:USER@HOST`"),
    "encryption_keys": (
        "Keys by which commands with `--url` read and write [encrypted](../guide/encryption.md) jobs: "
        "`id=base64,id=base64`, the newest first.",
        "none",
    ),
    "blob_store": (
        "The folder with large arguments and results for these commands; it must exist.",
        "none",
    ),
    "masked_names": (
        "Names whose values are also [masked](../guide/security.md#what-is-masked): each name that contains "
        "one of these, separated by commas.",
        "none",
    ),
    "require_encryption": (
        "Whether commands with `--url` refuse arguments and results that are "
        "[not encrypted](../guide/encryption.md#only-encrypted-jobs).",
        "false",
    ),
}
# Defaults that are not in the help of the flag.
_DEFAULTS: Final[Mapping[str, str]] = {
    "strict": "false", "metrics": "true", "log_format": "`text`", "log_level": "`info`",
    "max_jobs": "no limit", "max_memory": "no limit", "max_age": "no limit",
    "allow_webhooks_to": "none", "secrets_folder": "none",
}  # fmt: skip
OF_A_QUEUE: Final[Mapping[str, str]] = {
    "mode": "`aging`, `strict` or `fifo`; sets the scoring below",
    "weight": "its share of a worker that was given no weights",
    "lease": "how long a job stays leased to a worker that does not answer",
    "max_length": "limit of pending jobs",
    "default_priority": "priority of jobs without one",
    "min_priority": "lowest allowed priority",
    "max_priority": "highest allowed priority",
    "aging": "wait that adds one point of priority",
    "max_aging_bonus": "limit of points added by age; `none`: no limit",
    "retry_penalty": "points that each failure takes away",
    "deadline_weight": "points that a near deadline adds",
    "deadline_horizon": "how near the deadline must be",
    "keep_finished": "retention of completed and cancelled jobs; 0: until they are purged",
    "keep_dead": "retention of dead letters; 0: until they are purged",
    "archive": "whether pruned jobs leave an entry in the archive",
    "keep_archive": "retention of the archive; 0: for ever",
    "enqueue_rate": "new jobs per second; see [back-pressure](../guide/back-pressure.md)",
    "enqueue_burst": "new jobs at once after a pause; twice the rate by default",
    "client_rate": "new jobs per second of each client",
    "client_burst": "new jobs at once of one client after a pause; twice the rate by default",
    "fairness_weights": "weights of [fairness keys](../guide/fairness.md) above 1, as "
    'JSON: `fairness_weights:={"gold": 3}`',
    "promote_per_second": "jobs per second that become pending when many are due together "
    "([staggered](../guide/fairness.md))",
}
_ENGINES: Final[Mapping[str, str]] = {
    "sqlite": "`sqlite:///relative.db`, `sqlite:////absolute.db`",
    "postgresql": "`postgresql://user:password@host:5432/database`; all other options are libpq's",
    "redis": "`redis://host:6379/0`, `rediss://` with TLS, `redis+sentinel://one,two/master/0`, `unix:///run/redis.sock`",
    "https": "`https://one,two:8443/prefix`, a [service](../guide/remote.md)",
}
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def filled(page: str) -> str:
    """Return the page with fresh tables."""
    for name, lines in (("settings", settings()), ("queue", of_a_queue()), ("addresses", addresses())):
        marked = re.compile(_MARKS.format(name, ".*?"), re.DOTALL)
        if len(marked.findall(page)) != 1:
            raise ValueError(f"docs/reference/settings.md has no mark, or several, for {name}")
        made = _MARKS.format(name, "\n".join(["\n", *lines]).rstrip() + "\n\n")
        page = marked.sub(made.replace("\\", r"\\"), page)
    return page


def settings() -> Iterator[str]:
    """Yield every setting with its flag, its variable and its default."""
    flags = _flags()
    rows = [
        (code(name), _flag(name, flags), code(PREFIX + name.upper()), *_meaning(name, flags))
        for name in SETTING_TYPES
    ]
    yield from table(("setting", "flag", "variable", "meaning", "default"), rows)


def _flags() -> dict[str, tuple[click.Option, list[str]]]:
    """Return the options of settings with their commands; those of `worker` win."""
    found: dict[str, tuple[click.Option, list[str]]] = {}
    for words, command in sorted(commands().items(), key=lambda one: one[0] != "forebay worker"):
        for param in command.params:
            if isinstance(param, click.Option) and param.name in SETTING_TYPES and len(words.split()) == 2:  # noqa: PLR2004 - a command of no group
                found.setdefault(str(param.name), (param, []))[1].append(words.removeprefix("forebay "))
    return found


def _flag(name: str, flags: Mapping[str, tuple[click.Option, list[str]]]) -> str:
    if name in ("url", "app"):
        return f"`--{name}`{'; the first word of `worker`' if name == 'app' else ''}"
    if name in MEANINGS or name not in flags:  # a flag of the same name may mean something else
        return ""
    option, owners = flags[name]
    names = ", ".join(code(one) for one in (*option.opts, *option.secondary_opts) if one.startswith("--"))
    return f"{names} of {', '.join(map(code, owners))}"


def _meaning(name: str, flags: Mapping[str, tuple[click.Option, list[str]]]) -> tuple[str, str]:
    if name in MEANINGS:
        return MEANINGS[name]
    if name not in flags:
        raise ValueError(f"MEANINGS in tools/reference_pages/settings.py lacks {name}")
    option = flags[name][0]
    meaning, _, in_help = (option.help or "").partition("default: ")
    default = _DEFAULTS.get(name) or default_of(option) or in_help.removesuffix(".")
    return meaning.rstrip(" ;") + ("" if meaning.rstrip().endswith(".") else "."), default


def of_a_queue() -> Iterator[str]:
    """Yield every setting of a queue."""
    defaults = msgspec.to_builtins(QueueSettings())
    rows = []
    for field, value in defaults.items():
        name = field.removesuffix("_ms")
        if name not in OF_A_QUEUE:
            raise ValueError(f"OF_A_QUEUE in tools/reference_pages/settings.py lacks {name}")
        written = _length(value) if field.endswith("_ms") else _word(value)
        rows.append((code(name), OF_A_QUEUE[name], written))
    yield from table(("setting", "meaning", "default"), rows)


def _length(ms: int) -> str:
    return next(f"{ms // size}{unit}" for unit, size in _UNITS if ms % size == 0)


def _word(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else f"{value}"


def addresses() -> Iterator[str]:
    """Yield the options in the address of each engine."""
    for engine, options in URL_OPTIONS.items():
        yield f"{_ENGINES[engine]}:\n"
        rows = [(code(one.name), one.meaning, one.default) for one in options]
        yield from table(("option", "meaning", "default"), rows)
