"""Names and words keep to the rules of the house, and tools/names.py finds what breaks them."""

from __future__ import annotations

import ast
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tools import words
from tools.names import (
    BOUNDS,
    CHECKS,
    ROOT,
    Finding,
    counts_table,
    engine_files,
    exceeded,
    findings,
    gerund_modules,
    main,
    participle_functions,
    question_docstrings,
    read_paths,
    refused_files,
    refused_words,
    split_words,
    twin_classes,
)

SOURCE = ROOT / "src" / "forebay"
RENAMED = ROOT / "docs" / "internals" / "renamed.md"


@pytest.fixture(scope="module")
def found() -> list[Finding]:
    return findings()


@pytest.mark.parametrize("check", CHECKS)
def test_no_check_has_more_findings_than_its_bound(check: str, found: list[Finding]) -> None:
    own = [str(finding) for finding in found if finding.check == check]
    bound = BOUNDS.get(check, 0)

    assert len(own) <= bound, "\n".join([f"{len(own)} findings, allowed are {bound}:", *own])


def test_at_most_twelve_modules_may_be_gerunds() -> None:
    assert len(words.GERUNDS) <= words.MAX_GERUNDS


def test_every_exception_is_in_use() -> None:
    stems = {Path(path).stem.removeprefix("test_") for path in read_paths(ROOT)}
    stems |= {path.name for path in SOURCE.rglob("*ing")}
    classes = {
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }
    paths = list(read_paths(ROOT))

    assert [name for name in words.GERUNDS if name not in stems] == []
    assert [name for name in words.TWINS if name not in classes] == []
    for pattern, form in words.OTHER_MEANING:
        texts = [(ROOT / path).read_text(encoding="utf-8") for path in paths if fnmatchcase(path, pattern)]
        assert any(form in split_words(text) for text in texts), (pattern, form)


def test_no_word_stands_in_the_lists_twice() -> None:
    forms = [form for word in (*words.WORDS, words.ANONYMOUS) for form in word.forms]

    assert len(set(forms)) == len(forms)


def test_no_refused_word_is_left_to_review() -> None:
    forms = {form for word in (*words.WORDS, words.ANONYMOUS) for form in word.forms}

    assert sorted(forms & words.LEFT_TO_REVIEW.keys()) == []


def test_the_page_of_renamed_modules_names_files_that_exist_and_none_that_is_left() -> None:
    lines = RENAMED.read_text(encoding="utf-8").splitlines()
    rows = [
        tuple(cell.strip(" `") for cell in line.strip("|").split("|")) for line in lines if ".py`" in line
    ]

    assert len(rows) > 400
    assert [new for _, new in rows if not (SOURCE / new).is_file()] == []
    # The old path of a split may be one of the new ones.
    kept = {old for old, new in rows if old == new}
    assert [old for old, _ in rows if (SOURCE / old).exists() and old not in kept] == []


# ------------------------------------------------------------------ the tool itself


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("src/a.py", "deed = 1", ["deed"]),
        ("src/a.py", "class DutyRunner: ...", ["duty"]),
        ("src/a.py", "x = once_key", ["once_key"]),
        ("src/a.sql", "-- a once key is kept", ["once_key"]),
        ("docs/a.md", "Whoever reads it, and nobody else.", ["nobody", "whoever"]),
        ("dashboard/src/a.tsx", "const hasNews = 1", ["news"]),
        # Ordinary English in prose and in strings; private as a name.
        ("src/a.py", "# a lot of them stand beside it", []),
        ("src/a.py", 'raise ValueError("a lot")', []),
        ("src/a.py", "lot = next(lots)", ["lot", "lots"]),
        ("docs/a.md", "in stock", []),
        ("src/a.py", "heartbeat = newsletter.seated", []),
        ("docs/comparison.md", "no: beat", []),
    ],
)
def test_refused_words_are_found(path: str, text: str, expected: list[str]) -> None:
    assert [finding.found for finding in refused_words(path, text)] == expected


def test_a_finding_has_the_place_the_word_and_the_remedy() -> None:
    [finding] = refused_words("src/a.py", "x = 1\ndeed = 2")

    assert str(finding) == "src/a.py:2: word: deed -> action"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def looked(name): ...", ["looked"]),
        ("class A:\n    def _made(self): ...", ["_made"]),
        ("async def sorted_out(jobs): ...", ["sorted_out"]),
        ("def changed_state(job) -> None: ...", ["changed_state"]),
        ("def paused_queues() -> frozenset[str]: ...", []),
        ("def failed() -> bool: ...", []),
        ("def need(): ...\ndef speed(): ...\ndef set_up(): ...", []),
        ("class A:\n    @property\n    def claimed(self): ...", []),
        ("@click.command()\ndef stuck() -> None: ...", []),
        ("def claim():\n    def done(): ...", []),
    ],
)
def test_functions_named_by_a_past_participle_are_found(source: str, expected: list[str]) -> None:
    named = participle_functions("src/a.py", ast.parse(source))

    assert [finding.found.removesuffix("()") for finding in named] == expected


def test_gerunds_question_words_twins_and_odd_files_of_an_engine_are_found() -> None:
    paths = ["src/forebay/app/looking.py", "src/forebay/payload/masking.py", "src/forebay/moving/__init__.py"]
    paths += ["tests/app/test_measuring.py", "tests/payload/test_masking.py"]
    twins = {f"src/forebay/app/{name}.py": ast.parse("class Job: ...\nclass _Own: ...") for name in "ab"}
    engine = "src/forebay/stores/redis"

    assert [finding.found for finding in gerund_modules(paths)] == ["looking", "moving", "test_measuring"]
    assert [finding.found for finding in twin_classes(twins)] == ["Job", "Job"]
    assert list(twin_classes({"src/forebay/compat/rq/job.py": twins["src/forebay/app/a.py"]})) == []
    assert [f.found for f in engine_files([f"{engine}/key_layout.py", f"{engine}/odd.py"])] == ["odd"]
    for text, found in (('"""How jobs are read."""', ["How ..."]), ('"""Job reads."""', [])):
        assert [finding.found for finding in question_docstrings("src/a.py", ast.parse(text))] == found


def test_a_check_is_exceeded_beyond_its_bound_only() -> None:
    few = [Finding("anonymous", "src/a.py", 1, "nobody", "")] * words.MAX_ANONYMOUS
    one = [Finding("word", "src/forebay/app/a.py", 1, "deed", "")]

    assert exceeded(few) == {}
    assert exceeded([*few, *few[:1], *one]) == {"anonymous": words.MAX_ANONYMOUS + 1, "word": 1}
    assert counts_table(one).splitlines()[1].split() == ["src/forebay/app", *"0000010"]


def test_refused_words_are_found_in_names_of_files_too() -> None:
    paths = ["tests/stores/test_duties.py", "tests/stores/test_heartbeats.py"]

    assert [(found.path, found.found) for found in refused_files(paths)] == [(paths[0], "duties")]


def test_records_and_generated_code_are_not_read() -> None:
    paths = set(read_paths(ROOT))

    assert {"src/forebay/app/app.py", "docs/README.md", "README.md", "Makefile", "pyproject.toml"} <= paths
    assert {"tests/conftest.py", "tools/names.py", "deploy/Dockerfile", "deploy/compose.yaml"} <= paths
    assert not any(path.startswith(("docs/decisions/", "src/forebay/service/generated/")) for path in paths)


def test_a_path_limits_what_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], found: list[Finding], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.names.findings", lambda: found)  # they are the same, and take seconds
    assert main([str(ROOT / "src" / "forebay" / "errors" / "none"), str(tmp_path)]) == 0
    assert "all" in capsys.readouterr().out
