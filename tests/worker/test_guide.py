"""The page about workers does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "workers.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


def test_the_program_of_the_page_runs_in_an_empty_folder(tmp_path: Path) -> None:
    program = "\n\n".join(BLOCK.findall(PAGE.read_text(encoding="utf-8")))
    (tmp_path / "jobs.py").write_text(program)

    answer = subprocess.run(
        [sys.executable, "jobs.py"], cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False
    )

    assert answer.returncode == 0, answer.stderr
    assert len(program.splitlines()) > 50
