"""Pages that are made from the code are as the code is, and say something about all of it."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

import forebay
from forebay import errors
from forebay.domain.queue import QueueSettings
from forebay.errors import ConfigError
from forebay.stores.factory import open_engine
from forebay.stores.url_options import URL_OPTIONS
from tests.docs.pages import text
from tools.reference_pages.__main__ import main, stale, wanted
from tools.reference_pages.settings import filled


def test_the_pages_that_are_made_from_the_code_are_fresh() -> None:
    assert stale() == [], "make reference"


def test_a_changed_page_is_not_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    def changed() -> dict[Path, str]:
        return {path: f"{page}changed" for path, page in wanted().items()}

    monkeypatch.setattr("tools.reference_pages.__main__.wanted", changed)
    monkeypatch.setattr("sys.argv", ["reference_pages", "--check"])

    assert stale() == ["command-line.md", "errors.md", "metrics.md", "python.md", "settings.md"]
    assert main() == 1


def test_a_page_without_a_place_for_its_tables_is_refused() -> None:
    with pytest.raises(ValueError, match="has no mark, or several, for settings"):
        filled("# Settings\n")


def test_every_promised_name_has_its_signature() -> None:
    page = text("reference/python.md")
    kinds = {name for name in forebay.__all__ if name != "__version__" and name not in vars(errors)}

    assert [name for name in sorted(kinds) if f"### {name}\n" not in page] == []
    assert "`enqueue_many(jobs: Sequence[NewJob], *, atomic: bool = True" in page


def test_everything_on_the_page_of_names_is_described() -> None:
    page = text("reference/python.md")
    parts = re.split(r"^#{3,4} (.+)$", page, flags=re.MULTILINE)[1:]
    described = zip(parts[::2], parts[1::2], strict=True)
    bare = [
        name for name, body in described if not re.search(r"^(?!`|#)\S|^`dict`", body, flags=re.MULTILINE)
    ]

    assert [name for name in bare if name not in described_by_another()] == []


def described_by_another() -> set[str]:
    """Those whose description begins with a word of code."""
    return {"`ConfiguredTask.enqueue_tx`", "`Workflow.enqueue_tx`", "`Schedules.save_definition`"}


def test_no_page_names_a_place_in_memory() -> None:
    assert [path.name for path, page in wanted().items() if re.search(r"\bat 0x[0-9a-f]+", page)] == []


def test_every_error_says_what_to_do() -> None:
    page = text("reference/errors.md")
    rows = re.findall(r"^\| \[(\w+)\]\(#\w+\) \| (.*?) \|", page, flags=re.MULTILINE)

    assert len(rows) > 30
    assert [name for name, remedy in rows if not remedy] == ["ForebayError"]


@pytest.mark.parametrize("field", QueueSettings.__struct_fields__)
def test_the_defaults_of_a_queue_are_on_the_page(field: str) -> None:
    assert f"| `{field.removesuffix('_ms')}` |" in text("reference/settings.md")
    assert field in msgspec.to_builtins(QueueSettings())


@pytest.mark.parametrize(
    ("engine", "url"),
    [("sqlite", "sqlite:///jobs.db"), ("redis", "redis://localhost"), ("https", "https://localhost")],
)
def test_an_address_knows_the_options_of_its_page_and_no_others(engine: str, url: str) -> None:
    page = text("reference/settings.md")
    [options] = [found for name, found in URL_OPTIONS.items() if name == engine]

    assert [option.name for option in options if f"| `{option.name}` |" not in page] == []
    with pytest.raises(ConfigError, match=f"known are: {', '.join(option.name for option in options)}"):
        open_engine(f"{url}?nonsense=1")


ENGINES = {
    "memory": "memory://",
    "sqlite": "sqlite:///jobs.db",
    "postgresql": "postgresql://localhost/jobs",
    "redis": "redis://localhost",
    "remote": "https://localhost",
}


@pytest.mark.shows("R-STORE-04")
def test_the_table_of_engines_has_every_feature_as_the_engines_have_it() -> None:
    lines = [line.strip("| ").split(" | ") for line in text("reference/engines.md").splitlines()]
    names = next(line for line in lines if "sqlite" in line)
    table = {
        row[0].partition("`:")[0].strip("`"): dict(zip(names, row[1:], strict=True))
        for row in lines
        if row[0].startswith("`") and len(row) == len(names) + 1
    }

    features = {name: msgspec.structs.asdict(open_engine(url).features) for name, url in ENGINES.items()}

    assert {name: found.pop("name") for name, found in features.items()} == {name: name for name in ENGINES}
    fields = features["memory"]
    assert table == {
        field: {name: "yes" if features[name][field] else "no" for name in ENGINES} for field in fields
    }
