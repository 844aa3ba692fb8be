"""A pytest inside of a test."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.docs.pages import run


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tests in a folder with our plugin and no other: some take longer to load than these to run."""
    words = ("-m", "pytest", "-q", "-rA", "-p", "pytest_forebay", "-p", "no:cacheprovider")
    return run(folder, *words, *options, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
