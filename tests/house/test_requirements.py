"""The tool that says what of the catalogue is shown by tests."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

from tools.requirements import Catalogue, CatalogueReader, Status, main, showings, statuses

CATALOGUE = """\
# Requirements

## Steps

1. The model
2. The worker: who does the work

## 1. Jobs

Waits for: The model

### Names
- **R-JOB-01** A job has an id [000 001]
- **R-JOB-02** A job has a [short] name [002] {waits: The worker: who does the work}
- **R-JOB-03** A job has a colour {any} [002] {against: nobody would see it}

## 2. Queues

Waits for: The worker: who does the work

- **R-QUEUE-01** A queue has a name [001]
"""


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    path = tmp_path / "requirements.md"
    path.write_text(CATALOGUE)
    return path


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    folder = tmp_path / "tests"
    folder.mkdir()
    return folder


def write(folder: Path, text: str) -> Path:
    path = folder / "test_sample.py"
    path.write_text(dedent(text))
    return path


def read(path: Path) -> Catalogue:
    return CatalogueReader(path).read()


def run(catalogue: Path, tests: Path, *options: str) -> int:
    return main(["--catalogue", str(catalogue), "--tests", str(tests), *options])


def by_id(catalogue: Path, tests: Path) -> dict[str, Status]:
    found, _ = showings(tests)
    return {row.requirement.id: row for row in statuses(read(catalogue), found)}


def test_a_line_is_read_with_its_section_sources_and_step(catalogue: Path) -> None:
    found = read(catalogue)

    first = found.requirements["R-JOB-01"]
    assert found.problems == []
    assert found.sections == {1: "Jobs", 2: "Queues"}
    assert (first.text, first.sources, first.section) == ("A job has an id", ("000", "001"), 1)
    assert first.waits_for == "The model"


def test_a_note_overrides_the_default_of_the_section(catalogue: Path) -> None:
    second = read(catalogue).requirements["R-JOB-02"]

    assert second.text == "A job has a [short] name"
    assert second.waits_for == "The worker: who does the work"


def test_a_line_decided_against_has_its_reason(catalogue: Path) -> None:
    assert read(catalogue).requirements["R-JOB-03"].against == "nobody would see it"


@pytest.mark.parametrize(
    "sample",
    [
        """
        @pytest.mark.shows("R-JOB-01")
        def test_it(): ...
        """,
        """
        @pytest.mark.shows("R-QUEUE-01", "R-JOB-01")
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
    write(tests, sample)

    assert by_id(catalogue, tests)["R-JOB-01"].word == "shown"


def test_a_shown_line_names_its_tests(catalogue: Path, tests: Path) -> None:
    path = write(
        tests,
        """
        class TestIt:
            @pytest.mark.shows("R-JOB-01")
            def test_one(self): ...
        """,
    )

    assert by_id(catalogue, tests)["R-JOB-01"].tests == (f"{path}::TestIt::test_one",)


def test_what_no_test_shows_waits_or_is_decided_against(catalogue: Path, tests: Path) -> None:
    words = {name: row.word for name, row in by_id(catalogue, tests).items()}

    assert words == {
        "R-JOB-01": "waiting",
        "R-JOB-02": "waiting",
        "R-JOB-03": "against",
        "R-QUEUE-01": "waiting",
    }


def test_a_sound_catalogue_passes_the_check(catalogue: Path, tests: Path) -> None:
    assert run(catalogue, tests, "--check") == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("- **R-JOB-04** No sources", "expected `- **R-XXX-nn** text [sources]"),
        ("- **R-JOB-04** Late [002] {later: The model}", "neither {waits: step} nor {against: reason}"),
        ("- **R-JOB-04** No reason [002] {against: }", "neither {waits: step} nor {against: reason}"),
        ("- **R-JOB-04** Whenever [002] {waits: Someday}", "no step is called 'Someday'"),
        ("- **R-JOB-01** Again [002]", "R-JOB-01 stands here for the second time"),
        ("Waits for: Someday", "no step is called 'Someday'"),
        ("## 3. Bare\n\n- **R-BARE-01** Alone [002]", "the section has no line `Waits for: step`"),
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


def test_the_table_counts_by_section_and_step(
    catalogue: Path, tests: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tests, '@pytest.mark.shows("R-JOB-01")\ndef test_it(): ...\n')

    assert run(catalogue, tests) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["1", "Jobs", "3", "1", "1", "1", "2:1"] in lines
    assert ["2", "Queues", "1", "0", "0", "1", "2:1"] in lines
    assert ["all", "4", "1", "1", "2"] in lines


def test_a_section_lists_its_lines_with_their_story(
    catalogue: Path, tests: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tests, '@pytest.mark.shows("R-JOB-01")\ndef test_it(): ...\n')

    assert run(catalogue, tests, "--section", "1") == 0
    printed = capsys.readouterr().out
    assert f"shown by {path}::test_it" in printed
    assert "waits for: The worker: who does the work" in printed
    assert "decided against: nobody would see it" in printed
    assert "R-QUEUE-01" not in printed


def test_json_says_the_same_for_programs(
    catalogue: Path, tests: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(catalogue, tests, "--json") == 0

    answer = json.loads(capsys.readouterr().out)
    assert answer["totals"] == {"total": 4, "waiting": 3, "against": 1}
    assert answer["requirements"][0]["id"] == "R-JOB-01"
    assert answer["requirements"][0]["waits_for"] == "The model"
