"""Without npm and network a clone is run and installed without the page, and says how to get it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tools import package

NOWHERE = "http://127.0.0.1:1"  # refuses every connection
PROGRAMS = ("awk", "git", "make", "sh")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files of the project, without what is built or installed."""
    package.export(tmp_path / "clone")
    for built in (tmp_path / "clone" / package.STATIC).glob("**/*"):
        if built.is_file():
            built.unlink()
    return tmp_path / "clone"


@pytest.fixture
def alone(tmp_path: Path) -> dict[str, str]:
    """The environment of a newcomer without Node, npm, network and configuration."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in PROGRAMS:
        [found] = [one for one in ("/bin", "/usr/bin", "/usr/local/bin") if (Path(one) / name).exists()][:1]
        (programs / name).symlink_to(Path(found) / name)
    (tmp_path / "home").mkdir()
    return {
        "HOME": str(tmp_path / "home"),
        "PATH": str(programs),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "npm_config_registry": NOWHERE,
    }


def test_make_run_starts_without_the_page_and_says_how_to_get_it(clone: Path, alone: dict[str, str]) -> None:
    home = clone / ".venv"
    venv.create(home, with_pip=False, symlinks=True)
    # What the sample needs is lent by the environment that runs this; the project is that of the clone.
    lent = next(home.glob("lib/python*/site-packages")) / "lent.pth"
    lent.write_text(f"{clone / 'src'}\n{sysconfig.get_path('purelib')}\n")
    (home / ".ready-run").touch()

    done = subprocess.run(
        ["make", "run", "ARGS=--seconds 2 --port 0", f"PYTHON={sys.executable}"],
        cwd=clone,
        env=alone,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "The dashboard is not built: " in done.stdout
    assert "; then repeat `make run`." in done.stdout
    assert "there is no dashboard. " in done.stdout
    assert "  completed  " in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_a_wheel_of_a_clone_is_built_without_the_page(
    clone: Path, alone: dict[str, str], tmp_path: Path
) -> None:
    wheels = tmp_path / "wheels"
    pip = [sys.executable, "-m", "pip", "wheel", "--verbose", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*pip, "--wheel-dir", str(wheels), "."],
        cwd=clone,
        env=alone,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = wheels.iterdir()
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    assert "forebay/cli/commands/run_server.py" in names
    assert not [name for name in names if "dashboard/static/" in name]
    assert "The dashboard is not built: " in done.stderr
    assert "; then repeat `pip install`." in done.stderr
