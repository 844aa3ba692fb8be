from __future__ import annotations

from typing import Any

from tools.audit import CLEAN, FOUND, UNKNOWN, judge, judge_npm


def package(name: str, *flaws: str) -> dict[str, Any]:
    return {"name": name, "version": "1.0", "vulns": [{"id": id, "fix_versions": ["1.1"]} for id in flaws]}


def test_packages_without_a_known_vulnerability_are_fine() -> None:
    ours = {"name": "forebay", "skip_reason": "not on PyPI"}

    assert judge([package("a"), package("b"), ours]) == (
        CLEAN,
        ["2 packages looked up, no known vulnerability"],
    )


def test_a_known_vulnerability_is_named_with_the_release_that_mends_it() -> None:
    status, lines = judge([package("a"), package("b", "CVE-2026-1")])

    assert status == FOUND
    assert lines[0] == "b 1.0: CVE-2026-1, mended in 1.1"


def test_what_could_not_be_looked_up_does_not_look_like_a_good_result() -> None:
    skipped = {"name": "b", "skip_reason": "Dependency not found on PyPI"}

    assert judge([package("a"), skipped])[0] == UNKNOWN
    assert judge([skipped]) == (
        UNKNOWN,
        ["The advisory database cannot be reached from here: nothing was looked up."],
    )


def test_vulnerable_npm_packages_are_named() -> None:
    found = {"vite": {"range": "<8.0.1", "severity": "high"}}

    assert judge_npm({"vulnerabilities": found}) == (FOUND, ["npm vite <8.0.1: high"])
    assert judge_npm({"vulnerabilities": {}, "metadata": {"dependencies": {"total": 95}}}) == (
        CLEAN,
        ["95 npm packages looked up, no known vulnerability"],
    )


def test_where_npm_cannot_be_asked_nothing_is_known() -> None:
    assert judge_npm({"message": "405 Method Not Allowed"})[0] == UNKNOWN == 69
