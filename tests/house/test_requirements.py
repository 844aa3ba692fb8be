"""The tool that says what of the catalogue is shown by tests."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

from tools.requirements import Catalogue, Status, main, read_catalogue, showings, statuses

CATALOGUE = """\
# Requirements

## 1. Jobs

### Names
- **R-JOB-01** A job has an id [000 001]
- **R-JOB-02** A job has a [short] name [002] {partly: nothing bounds its length}
- **R-JOB-03** A job has a colour {any} [002] {against: no view would show it}

## 2. Queues

- **R-QUEUE-01** A queue has a shape [001] {missing: queues have no shape}
"""
# What marks each line of this catalogue that has to have a test.
MARKED = '@pytest.mark.shows("R-JOB-01", "R-JOB-02")\ndef test_it(): ...\n'


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    path = tmp_path / "requirements.md"
    path.write_text(CATALOGUE)
    return path


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_first.py").write_text(MARKED)
    return folder


def write(folder: Path, text: str) -> Path:
    path = folder / "test_sample.py"
    path.write_text(dedent(text))
    return path


def read(path: Path) -> Catalogue:
    return read_catalogue(path)


def run(catalogue: Path, tests: Path, *options: str) -> int:
    return main(["--catalogue", str(catalogue), "--tests", str(tests), *options])


def by_id(catalogue: Path, tests: Path) -> dict[str, Status]:
    found, _ = showings(tests)
    return {row.requirement.id: row for row in statuses(read(catalogue), found)}


def test_a_line_is_read_with_its_section_and_sources(catalogue: Path) -> None:
    found = read(catalogue)

    first = found.requirements["R-JOB-01"]
    assert found.problems == []
    assert found.sections == {1: "Jobs", 2: "Queues"}
    assert (first.text, first.sources, first.section) == ("A job has an id", ("000", "001"), 1)
    assert (first.state, first.reason) == ("shown", "")


def test_a_note_gives_the_state_and_its_reason(catalogue: Path) -> None:
    found = read(catalogue).requirements

    assert found["R-JOB-02"].text == "A job has a [short] name"
    assert (found["R-JOB-02"].state, found["R-JOB-02"].reason) == ("partly", "nothing bounds its length")
    assert (found["R-JOB-03"].state, found["R-JOB-03"].reason) == ("against", "no view would show it")
    assert (found["R-QUEUE-01"].state, found["R-QUEUE-01"].reason) == ("missing", "queues have no shape")


@pytest.mark.parametrize(
    "sample",
    [
        """
        @pytest.mark.shows("R-JOB-01")
        def test_it(): ...
        """,
        """
        @pytest.mark.shows("R-JOB-02", "R-JOB-01")
        async def test_it(): ...
        """,
        """
        @pytest.mark.shows("R-JOB-01")
        class TestIt:
            def test_one(self): ...
        """,
        """
        class TestIt:
            @pytest.mark.shows("R-JOB-01")
            def test_one(self): ...
        """,
        """
        pytestmark = pytest.mark.shows("R-JOB-01")
        """,
        """
        pytestmark = [pytest.mark.slow, pytest.mark.shows("R-JOB-01")]
        """,
        """
        pytestmark: list[pytest.MarkDecorator] = [pytest.mark.shows("R-JOB-01")]
        """,
        """
        class TestIt:
            pytestmark = [pytest.mark.shows("R-JOB-01")]
        """,
        """
        @pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.shows("R-JOB-01"))])
        def test_it(n): ...
        """,
        """
        @shows("R-JOB-01")
        def test_it(): ...
        """,
    ],
)
def test_a_marker_is_found_wherever_pytest_would_find_it(sample: str, catalogue: Path, tests: Path) -> None:
    (tests / "test_first.py").unlink()
    write(tests, sample)

    assert len(by_id(catalogue, tests)["R-JOB-01"].tests) == 1


def test_a_shown_line_names_its_tests(catalogue: Path, tests: Path) -> None:
    path = write(
        tests,
        """
        class TestIt:
            @pytest.mark.shows("R-JOB-01")
            def test_one(self): ...
        """,
    )

    assert f"{path}::TestIt::test_one" in by_id(catalogue, tests)["R-JOB-01"].tests


@pytest.mark.parametrize(("marked", "unmarked"), [("R-JOB-01", "R-JOB-02"), ("R-JOB-02", "R-JOB-01")])
def test_a_shown_or_partly_shown_line_needs_a_test(
    marked: str, unmarked: str, catalogue: Path, tests: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tests / "test_first.py").write_text(f'@pytest.mark.shows("{marked}")\ndef test_it(): ...\n')

    assert run(catalogue, tests, "--check") == 1
    (complaint,) = capsys.readouterr().err.splitlines()
    assert f"no test shows {unmarked}" in complaint


def test_a_sound_catalogue_passes_the_check(catalogue: Path, tests: Path) -> None:
    assert run(catalogue, tests, "--check") == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("- **R-JOB-04** No sources", "expected `- **R-XXX-nn** text [sources]"),
        ("- **R-JOB-04** Late [002] {later: The model}", "{later: The model} is none of {partly: "),
        ("- **R-JOB-04** No reason [002] {against: }", "{against: } is none of {partly: "),
        ("- **R-JOB-01** Again [002]", "R-JOB-01 stands here for the second time"),
    ],
)
def test_the_check_names_a_bad_line(
    line: str, message: str, catalogue: Path, tests: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    catalogue.write_text(f"{CATALOGUE}{line}\n")
    last = len(catalogue.read_text().splitlines())

    assert run(catalogue, tests, "--check") == 1
    complaint = capsys.readouterr().err
    assert f"{catalogue}:{last}: " in complaint
    assert message in complaint


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ('shows("R-JOB-99")', "R-JOB-99 is not in the catalogue"),
        ('shows("R-JOB-03")', "R-JOB-03 was decided against"),
        ('shows("R-QUEUE-01")', "R-QUEUE-01 was not built"),
        ("shows(NAME)", "must be written out as strings"),
    ],
)
def test_the_check_names_a_bad_marker(
    marker: str, message: str, catalogue: Path, tests: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tests, f"@pytest.mark.{marker}\ndef test_it(): ...\n")

    assert run(catalogue, tests, "--check") == 1
    complaint = capsys.readouterr().err
    assert f"{path}:1: " in complaint
    assert message in complaint


def test_the_table_counts_each_state_by_section(
    catalogue: Path, tests: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(catalogue, tests) == 0
    printed = capsys.readouterr().out
    assert "shown    partly shown       not built decided against" in printed.splitlines()[0]
    lines = [line.split() for line in printed.splitlines()]
    assert ["1", "Jobs", "3", "1", "1", "0", "1"] in lines
    assert ["2", "Queues", "1", "0", "0", "1", "0"] in lines
    assert ["all", "4", "1", "1", "1", "1"] in lines


def test_a_section_lists_its_lines_with_state_and_tests(
    catalogue: Path, tests: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(catalogue, tests, "--section", "1") == 0
    printed = capsys.readouterr().out
    assert f"{tests / 'test_first.py'}::test_it" in printed
    assert "partly shown: nothing bounds its length" in printed
    assert "decided against: no view would show it" in printed
    assert "R-QUEUE-01" not in printed


def test_json_says_the_same_for_programs(
    catalogue: Path, tests: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(catalogue, tests, "--json") == 0

    answer = json.loads(capsys.readouterr().out)
    assert answer["totals"] == {"total": 4, "shown": 1, "partly": 1, "missing": 1, "against": 1}
    assert answer["requirements"][1]["id"] == "R-JOB-02"
    assert answer["requirements"][1]["reason"] == "nothing bounds its length"
