"""The rules that `make check` holds, so that they are not loosened unnoticed."""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path

import pytest

from forebay import errors

MAKEFILE = Path("Makefile").read_text(encoding="utf-8")
PROJECT = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.shows("R-NFR-29", "R-NFR-32", "R-NFR-33")
def test_every_branch_of_the_domain_is_covered_or_the_check_fails() -> None:
    assert "--cov=forebay.domain --cov-branch --cov-fail-under=100" in MAKEFILE


@pytest.mark.shows("R-SDK-14")
def test_types_are_checked_strictly_in_code_and_tests() -> None:
    assert "$(BIN)/mypy $(CODE)" in MAKEFILE
    assert PROJECT["tool"]["mypy"]["strict"] is True


@pytest.mark.shows("R-TEST-66")
def test_every_test_has_a_time_limit() -> None:
    assert PROJECT["tool"]["pytest"]["ini_options"]["timeout"] <= 600


@pytest.mark.shows("R-SDK-04")
def test_every_error_has_one_root() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    roots = (errors.ForebayError, errors.JobSignal, errors.PermanentError, errors.RetryableError)

    assert len(kinds) > len(roots)
    assert all(issubclass(kind, roots) for kind in kinds)
    assert issubclass(errors.QueueFull, errors.ForebayError)
    assert issubclass(errors.PayloadError, errors.InvalidJob)
    assert issubclass(errors.StoreUnavailable, errors.StoreError)
