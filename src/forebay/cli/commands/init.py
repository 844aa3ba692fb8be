"""`forebay init`: write a small working project into a folder."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from forebay.cli.output import Output, text
from forebay.errors import ConfigError, ForebayError
from forebay.stores.factory import open_engine
from forebay.stores.url_redaction import redact_url

TEMPLATES: Final = Path(__file__).parents[1] / "project"
# Words for a store, and their URLs.
DEFAULT_URLS: Final = {
    "sqlite": "sqlite:///jobs.db",
    "postgresql": "postgresql://localhost/jobs",
    "redis": "redis://localhost:6379/0",
}
# Extra that a store needs, by the scheme of its URL.
_EXTRAS: Final = {"sqlite": (), "postgres": ("postgres",), "redis": ("redis",), "valkey": ("redis",)}
# Password after a user name; the URL was checked before, so its signs are escaped.
_PASSWORD: Final = re.compile(r"(://[^/:@]*):[^/@]*@")
_WORKER: Final = {
    "tasks.py": "tasks.py.txt",
    "conftest.py": "conftest.py.txt",
    "test_tasks.py": "test_tasks.py.txt",
    "forebay.toml": "forebay.toml.txt",
    "requirements.txt": "requirements.txt.txt",
    "README.md": "README-worker.md.txt",
    ".gitignore": "gitignore.txt",
}
_WEB: Final = {
    **_WORKER,
    "web.py": "web.py.txt",
    "requirements.txt": "requirements-web.txt.txt",
    "README.md": "README-web.md.txt",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """Project to write: the store, and whether a web app runs the jobs itself."""

    url: str
    is_web: bool

    @property
    def written_url(self) -> str:
        """URL without its password, which does not belong into a shared file."""
        place, mark, options = self.url.partition("?")
        shown = [option for option in options.split("&") if redact_url(f"?{option}") == f"?{option}"]
        return _PASSWORD.sub(r"\1@", place) + (mark if any(shown) else "") + "&".join(shown)

    @property
    def has_password(self) -> bool:
        return self.written_url != self.url

    @property
    def extras(self) -> str:
        store = next(more for scheme, more in _EXTRAS.items() if self.url.startswith(scheme))
        return ",".join(sorted({"cli", "reload", "server", *store}))

    def files(self) -> dict[str, str]:
        """Return the content of each file, by name."""
        blanks = {
            "url": json.dumps(self.written_url),
            "shown_url": self.written_url,
            "extras": self.extras,
            "elsewhere": "; `FOREBAY_URL` has the same address with its password"
            if self.has_password
            else "",
        }
        return {
            name: _fill_template((TEMPLATES / template).read_text(encoding="utf-8"), blanks)
            for name, template in (_WEB if self.is_web else _WORKER).items()
        }

    def steps(self, folder: Path) -> list[str]:
        """Return the next commands to run."""
        enter = [] if folder.resolve() == Path.cwd() else [f"cd {folder}"]
        secret = [f"export FOREBAY_URL='{redact_url(self.url)}'"] if self.has_password else []
        run = ["uvicorn web:web --reload"] if self.is_web else ["forebay dev"]
        more = ["forebay enqueue tasks.send_mail ada@example.com subject=Hi", "pytest"]
        # There is no release yet: Forebay must be installed before the requirements that name it.
        install = [f"pip install '/path/to/forebay[{self.extras}]'", "pip install -r requirements.txt"]
        return [*enter, *secret, *install, *run, *more]


def _fill_template(template: str, blanks: dict[str, str]) -> str:
    for name, value in blanks.items():
        template = template.replace(f"{{{{{name}}}}}", value)
    return template


@click.command(epilog="Example: `forebay init shop --store postgresql --run-in web`.")
@click.argument("folder", type=click.Path(path_type=Path), default=".")
@click.option(
    "--store",
    metavar="WORD|URL",
    help="Store of the jobs: sqlite (the default), postgresql, redis, or a URL.",
)
@click.option(
    "--run-in",
    type=click.Choice(["worker", "web"]),
    help="Process that runs the jobs: a worker (the default), or a FastAPI app.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask; take the defaults.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, for programs.")
def init(folder: Path, store: str | None, run_in: str | None, yes: bool, as_json: bool) -> None:
    """Write a small project that works: tasks, a schedule, tests, and the next steps.

    Asks two questions, unless the answers are given or there is no terminal. FOLDER is created if it does not
    exist. No file is overwritten.
    """
    is_interactive = not yes and not as_json and sys.stdin.isatty()
    url = _resolve_url(store or (_ask_store() if is_interactive else "sqlite"))
    place = run_in or (_ask_run_in() if is_interactive else "worker")
    project = Project(url=url, is_web=place == "web")
    files = project.files()
    _write_files(folder, files)
    answer: dict[str, Any] = {
        "folder": str(folder),
        "files": sorted(files),
        "url": redact_url(url),
        "run_in": place,
        "next": project.steps(folder),
    }
    Output(as_json=as_json).print_result(answer, lambda: _print_steps(answer))


def _ask_store() -> str:
    click.echo("Where are jobs stored? In a file, or on a server that several machines can reach.", err=True)
    return str(click.prompt("sqlite, postgresql, redis or a URL", default="sqlite", err=True))


def _ask_run_in() -> str:
    click.echo("Which process runs them? A worker, or a web app (FastAPI).", err=True)
    return str(
        click.prompt("worker or web", type=click.Choice(["worker", "web"]), default="worker", err=True)
    )


def _resolve_url(value: str) -> str:
    """Return the URL of the store; raise ConfigError if it is not a store that processes can share."""
    url = DEFAULT_URLS.get(value.strip().lower(), value.strip())
    if not url.startswith(tuple(_EXTRAS)):
        raise ConfigError(
            f"{redact_url(url)!r} is not a store for a new project: write sqlite, postgresql or redis, or "
            f"a URL such as {DEFAULT_URLS['postgresql']}"
        )
    try:
        open_engine(url)
    except ForebayError as exc:
        if not isinstance(exc.__cause__, ModuleNotFoundError):  # its driver is among the requirements
            raise
    return url


def _write_files(folder: Path, files: dict[str, str]) -> None:
    """Write all files, or none; raise ConfigError if one exists already."""
    taken = sorted(name for name in files if os.path.lexists(folder / name))
    if taken:
        raise ConfigError(
            f"{', '.join(taken)} {'exists' if len(taken) == 1 else 'exist'} in {folder}, and nothing is "
            "overwritten: name another folder, as in `forebay init jobs`"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(content)
    except OSError as exc:
        raise ConfigError(f"{folder} cannot be written: {exc.strerror or exc}; name another folder") from exc


def _print_steps(answer: dict[str, Any]) -> None:
    is_here = Path(answer["folder"]).resolve() == Path.cwd()
    shown = "this folder" if is_here else answer["folder"]
    click.echo(text(f"Wrote {', '.join(answer['files'])} into {shown}."))
    click.echo("\nNext:\n")
    for step in answer["next"]:
        click.echo(f"    {text(step)}")
    click.echo("\nSee README.md.")
