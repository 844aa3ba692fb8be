"""The lowest versions of dependencies that pyproject.toml allows."""

from __future__ import annotations

import pytest

from tools import lowest_versions


def test_every_dependency_of_the_package_and_of_its_extras_has_a_lowest_version() -> None:
    floors = lowest_versions.floors(lowest_versions.project())

    assert {"redis[hiredis]==7", "msgspec==0.22", "flask==3"} <= set(floors)
    assert all("==" in one for one in floors)


def test_a_marker_of_a_dependency_stays_with_it() -> None:
    project = {
        "name": "forebay",
        "dependencies": [],
        "optional-dependencies": {"some": ["forebay[other]", "a-b>=1.2; python_version < '3.12'"]},
    }

    assert lowest_versions.floors(project) == ["a-b==1.2; python_version < '3.12'"]


def test_a_dependency_without_a_lowest_version_is_refused() -> None:
    with pytest.raises(SystemExit, match="'rich' has no lowest version"):
        lowest_versions.floors({"name": "forebay", "dependencies": ["rich"], "optional-dependencies": {}})


def test_all_that_runs_the_tests_is_pinned_for_development() -> None:
    assert len(lowest_versions.test_tools(lowest_versions.project())) == len(lowest_versions.TEST_TOOLS)
