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
from tools.reference_pages.writing import code, table

_MARKS: Final = "<!-- made by make reference: {0} -->{1}<!-- end of {0} -->"
# What no flag of a command tells: what a setting means, and what holds without it.
MEANINGS: Final[Mapping[str, tuple[str, str]]] = {
    "url": ("The store that commands look at.", code(DEFAULT_URL)),
    "api_key": ("The API key for a `url` that is a [service](../guide/remote.md) (`https://`).", "none"),
    "app": ("The app, as `package.module:name`, looked for from the present folder on.", "none"),
    "actor": ("What the history calls whoever runs a command.", "`cli:USER@HOST`"),
    "encryption_keys": (
        "Keys by which commands with `--url` read and write [encrypted](../guide/encryption.md) jobs: "
        "`id=base64,id=base64`, the newest first.",
        "none",
    ),
    "blob_store": (
        "The folder in which they find large arguments and results; it must exist.",
        "none",
    ),
    "masked_names": (
        "Names whose values are also [masked](../guide/security.md#what-is-masked): each name that contains "
        "one of these, separated by commas.",
        "none",
    ),
    "require_encryption": (
        "Whether they refuse arguments and results that are "
        "[not encrypted](../guide/encryption.md#only-encrypted-jobs).",
        "false",
    ),
}
# Where there is none, the help of a flag says what holds without it.
_UNSAID: Final[Mapping[str, str]] = {
    "strict": "false", "metrics": "true", "log_format": "`text`", "log_level": "`info`",
    "max_jobs": "no limit", "max_memory": "no limit", "max_age": "no limit",
    "allow_webhooks_to": "none", "secrets_folder": "none",
}  # fmt: skip
OF_A_QUEUE: Final[Mapping[str, str]] = {
    "mode": "`aging`, `strict` or `fifo`; sets the scoring below",
    "weight": "its part beside the other queues of a worker that was given no weights",
    "lease": "how long a worker that does not answer keeps a job",
    "max_length": "how many pending jobs it takes",
    "default_priority": "of jobs that name none",
    "min_priority": "the least that is allowed",
    "max_priority": "the most that is allowed",
    "aging": "the wait that is worth one point of priority",
    "max_aging_bonus": "the most that a wait can be worth; `none`: it counts without end",
    "retry_penalty": "points that each failure costs",
    "deadline_weight": "points that a near deadline is worth",
    "deadline_horizon": "how near that is",
    "keep_finished": "how long completed and cancelled jobs are kept; 0: until they are purged",
    "keep_dead": "how long dead letters are kept; 0: until they are purged",
    "archive": "whether a line stays of each",
    "keep_archive": "how long that line stays; 0: for ever",
    "enqueue_rate": "how many new jobs a second it takes; see [back-pressure](../guide/back-pressure.md)",
    "enqueue_burst": "how many it takes together after a pause; twice the rate if nobody says",
    "client_rate": "how many new jobs a second it takes of each client",
    "client_burst": "how many together of one client after a pause; twice the rate if nobody says",
    "fairness_weights": "the weights of [fairness keys](../guide/fairness.md) that count for more than 1, as "
    'JSON: `fairness_weights:={"gold": 3}`',
    "promote_per_second": "how many jobs that come due together become pending in a second "
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
    """The page with its tables as they should be."""
    for name, lines in (("settings", settings()), ("queue", of_a_queue()), ("addresses", addresses())):
        marked = re.compile(_MARKS.format(name, ".*?"), re.DOTALL)
        if len(marked.findall(page)) != 1:
            raise ValueError(f"docs/reference/settings.md has no place, or several, for {name}")
        made = _MARKS.format(name, "\n".join(["\n", *lines]).rstrip() + "\n\n")
        page = marked.sub(made.replace("\\", r"\\"), page)
    return page


def settings() -> Iterator[str]:
    """Every setting, with its flag, its variable and what holds without it."""
    flags = _flags()
    rows = [
        (code(name), _flag(name, flags), code(PREFIX + name.upper()), *_meaning(name, flags))
        for name in SETTING_TYPES
    ]
    yield from table(("setting", "flag", "variable", "meaning", "default"), rows)


def _flags() -> dict[str, tuple[click.Option, list[str]]]:
    """The options that give a setting, with the commands that have them; `worker` is asked first."""
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
        raise ValueError(f"say in tools/reference_pages/settings.py what the setting {name} means")
    option = flags[name][0]
    said, _, usual = (option.help or "").partition("default: ")
    default = _UNSAID.get(name) or default_of(option) or usual.removesuffix(".")
    return said.rstrip(" ;") + ("" if said.rstrip().endswith(".") else "."), default


def of_a_queue() -> Iterator[str]:
    """Every setting of a queue."""
    usual = msgspec.to_builtins(QueueSettings())
    rows = []
    for field, value in usual.items():
        name = field.removesuffix("_ms")
        if name not in OF_A_QUEUE:
            raise ValueError(f"say in tools/reference_pages/settings.py what {name} of a queue means")
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
    """What the address of each engine may say."""
    for engine, options in URL_OPTIONS.items():
        yield f"{_ENGINES[engine]}:\n"
        rows = [(code(one.name), one.meaning, one.default) for one in options]
        yield from table(("option", "meaning", "default"), rows)
