"""The files that deploy a program, as their readers understand them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import yaml

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
GUIDE: Final = ROOT / "docs" / "guide" / "deployment.md"
_LENGTH: Final = re.compile(r"(\d+)s\Z")


class Command(NamedTuple):
    """A command line of ours, its file, and its time to stop; None without one."""

    where: str
    words: list[str]
    stops_within: float | None = None

    def option(self, name: str) -> str:
        return self.words[self.words.index(name) + 1]


def documents(path: Path) -> list[Any]:
    """The YAML documents of a file."""
    return [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one is not None]


def manifests() -> list[Any]:
    """Everything that is sent to Kubernetes."""
    files = [
        *sorted((DEPLOY / "kubernetes").glob("*.yaml")),
        *sorted((DEPLOY / "autoscaling").glob("*.yaml")),
    ]
    return [one for path in files for one in documents(path) if "kind" in one]


def pods() -> list[tuple[str, Any]]:
    """The pods of jobs and deployments, by name."""
    found = [one for one in manifests() if one["kind"] in ("Deployment", "Job")]
    return [(one["metadata"]["name"], one["spec"]["template"]["spec"]) for one in found]


def compose() -> Any:
    [found] = documents(DEPLOY / "compose.yaml")
    return found


def ours_in_compose() -> dict[str, Any]:
    """Its services that run our image."""
    return {name: one for name, one in compose()["services"].items() if "build" in one}


def unit(path: Path) -> ConfigParser:
    """A unit of systemd; each of ours says a thing once."""
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # they are written in capitals and small
    parser.read_string(path.read_text(encoding="utf-8"))
    return parser


def units() -> list[Path]:
    return sorted((DEPLOY / "systemd").glob("*.service"))


def commands() -> list[Command]:
    """Every command line of ours in these files and in the page about them."""
    return [*_in_dockerfile(), *_in_compose(), *_in_kubernetes(), *_in_units(), *_in_guide()]


def _in_dockerfile() -> Iterator[Command]:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    [entry] = re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)
    assert msgspec.json.decode(entry) == ["forebay"]
    [command] = re.findall(r"^CMD (.*)$", text, re.MULTILINE)
    yield Command("Dockerfile", msgspec.json.decode(command))


def _in_compose() -> Iterator[Command]:
    for name, one in ours_in_compose().items():
        period = one.get("stop_grace_period")
        found = None if period is None else _LENGTH.match(period)
        assert period is None or found is not None, period
        yield Command(f"compose.yaml, {name}", one["command"], None if found is None else float(found[1]))


def _in_kubernetes() -> Iterator[Command]:
    for name, pod in pods():
        [container] = pod["containers"]
        assert "command" not in container  # the entry point of the image stays
        yield Command(f"kubernetes, {name}", container["args"], pod.get("terminationGracePeriodSeconds"))


def _in_units() -> Iterator[Command]:
    for path in units():
        service = unit(path)["Service"]
        program, *words = shlex.split(service["ExecStart"])
        assert program == "/srv/app/.venv/bin/forebay"
        stop = service.get("TimeoutStopSec")
        yield Command(path.name, words, None if stop is None else float(stop))


def _in_guide() -> Iterator[Command]:
    for line in GUIDE.read_text(encoding="utf-8").splitlines():
        if line.startswith("    forebay "):
            yield Command("deployment.md", shlex.split(line)[1:])
