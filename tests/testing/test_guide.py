"""The page about testing does what it says."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.pages import blocks
from tests.testing.inner import run_pytest

PAGE = "guide/testing.md"


def test_the_files_of_the_page_are_tests_of_which_one_fails_as_it_says(tmp_path: Path) -> None:
    for block in blocks(PAGE, "python"):
        first, _, body = block.partition("\n")
        with (tmp_path / first.removeprefix("# ")).open("a") as file:
            file.write(f"{body}\n\n")
    [settings] = blocks(PAGE, "toml")
    (tmp_path / "pyproject.toml").write_text(settings)

    answer = run_pytest(tmp_path)

    ends = re.findall(r"^(PASSED|FAILED) (\S+)", answer.stdout, flags=re.MULTILINE)
    assert len(ends) == 24, answer.stdout
    failed = [test for end, test in ends if end == "FAILED"]
    assert failed == [
        f"test_receipts.py::test_a_card_is_charged_once[ran-{one}]" for one in ("memory", "sqlite")
    ]
    [output] = blocks(PAGE, "")
    for words in re.split(r"for job \w+ ", output.strip()):
        assert words in answer.stdout
