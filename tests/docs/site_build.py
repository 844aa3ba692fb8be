"""Building the site, in a process of its own: what Sphinx is warned of by Python is not ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.docs.pages import ROOT

# Half a minute on a quiet machine.
DEADLINE: Final = 540


def built(root: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a repository, as `make site` does."""
    script = "import sys; from pathlib import Path; from tools.build_site import build"
    call = f"sys.exit(build(Path({str(root)!r}), Path({str(out)!r})))"
    return ran("-c", f"{script}; {call}")


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    """Run Python where our tools are."""
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
