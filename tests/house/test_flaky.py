"""`tools/flaky.py` tells flaky tests from failing ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPORT = '<testsuites><testsuite><testcase classname="tests.a" name="one"/>{}</testsuite></testsuites>'
FAILED = '<testcase classname="tests.a" name="{}"><failure message="no"/></testcase>'
PASSED = '<testcase classname="tests.a" name="{}"/>'


def flaky(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "tools/flaky.py", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.shows("R-TEST-67")
def test_a_test_that_fails_now_and_then_is_named_with_how_often(tmp_path: Path) -> None:
    reports = [tmp_path / f"{number}.xml" for number in range(3)]
    for number, report in enumerate(reports):
        shaky = FAILED if number == 1 else PASSED
        report.write_text(REPORT.format(shaky.format("shaky") + FAILED.format("broken")), encoding="utf-8")

    done = flaky("--read", *reports)

    assert done.returncode == 1
    assert "1 of 3 times    tests.a::shaky" in done.stdout
    assert "always          tests.a::broken" in done.stdout
    assert "3 tests, 2 failed at some time" in done.stdout
