"""Add the page of the dashboard to the wheel and to the sdist.

An unpacked sdist has it built, so installing one needs no Node. In a clone it is built with the Node of the
machine, or with one that pip fetches for the build. Where neither is possible the wheel has no page: a
warning says so, and `forebay server` does at its start. FOREBAY_SKIP_DASHBOARD leaves the page out, and an
editable install never builds it: there `make dashboard` does.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Dashboard(BuildHookInterface[Any]):
    """Build the page before the files are gathered."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or self._is_there():
            return
        sys.path.insert(0, self.root)
        from tools.dashboard import build_if_possible  # noqa: PLC0415 - it is not a package that is installed

        with TemporaryDirectory() as node:
            if reason := build_if_possible("repeat `pip install`", Path(node)):
                self.app.display_warning(reason)

    def _is_there(self) -> bool:
        root = Path(self.root)
        is_built = (root / "src/forebay/dashboard/static/index.html").exists()
        return bool(os.environ.get("FOREBAY_SKIP_DASHBOARD")) or (is_built and not (root / ".git").exists())
