"""`forebay version`."""

from __future__ import annotations

import platform
import sqlite3
from importlib import metadata

import psycopg
import pytest

from forebay import __version__
from tests.cli.command_runner import answer, call


def test_it_names_forebay_python_sqlite_and_the_drivers() -> None:
    result = answer("version")

    assert (result["forebay"], result["python"]) == (__version__, platform.python_version())
    assert result["sqlite"] == sqlite3.sqlite_version
    assert result["packages"]["psycopg"] == psycopg.__version__
    assert {"click", "msgspec", "redis", "httpx2", "litestar", "rich"} <= result["packages"].keys()
    assert not {"pytest", "ruff", "forebay"} & result["packages"].keys()


def test_people_are_told_how_to_get_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        *("click>=8.1", "web>=1; extra == 'big'", "wire>=1; extra == 'big'", "web>=1; extra == 'small'"),
        "no-such-driver[fast]>=2; extra == 'nosuch'",
        "forebay[server]; extra == 'grpc'",
    ]
    monkeypatch.setattr(metadata, "requires", lambda _: lines)

    shown = call("version").stdout

    assert f"forebay         {__version__}" in shown
    assert "not installed" in shown
    assert "pip install 'forebay[nosuch]'" in shown
    assert "pip install 'forebay[small]'" in shown
    assert "grpc" not in shown.partition("Packages")[2]


def test_a_forebay_that_was_never_installed_knows_its_version_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing(_: str) -> list[str]:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "requires", nothing)

    assert answer("version")["packages"] == {}
