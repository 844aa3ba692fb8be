from __future__ import annotations

from pathlib import Path

import pytest

from forebay.cli.settings import SETTING_TYPES, read_settings, unknown_variables
from forebay.errors import ConfigError

TOOL = "[tool.forebay]\n"


@pytest.mark.shows("R-CFG-68")
def test_a_flag_wins_over_the_environment_over_the_file_over_the_project(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pyproject.toml").write_text(TOOL + 'url = "p"\napp = "p"\nactor = "p"\nthreads = 1\n')
    (folder / "forebay.toml").write_text('url = "f"\napp = "f"\nactor = "f"\n')
    monkeypatch.setenv("FOREBAY_URL", "e")
    monkeypatch.setenv("FOREBAY_APP", "e")

    found = read_settings({"url": "flag", "app": None}).found

    assert {name: (setting.value, setting.source) for name, setting in found.items()} == {
        "url": ("flag", "--url"),
        "app": ("e", "FOREBAY_APP"),
        "actor": ("f", "forebay.toml"),
        "threads": (1, "pyproject.toml"),
    }


@pytest.mark.shows("R-STORE-02")
@pytest.mark.parametrize(
    ("flags", "variables", "chosen"),
    [
        ({}, {}, ("url", "sqlite:///forebay.db")),
        ({}, {"URL": "u", "APP": "a"}, ("url", "u")),
        ({"app": "a"}, {"URL": "u"}, ("app", "a")),
        ({"url": "u"}, {"APP": "a"}, ("url", "u")),
        ({}, {"APP": "a"}, ("app", "a")),
    ],
)
def test_the_store_is_the_one_that_was_named_nearest_to_the_command(
    flags: dict[str, str],
    variables: dict[str, str],
    chosen: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"FOREBAY_{name}", value)

    assert read_settings(flags).store == chosen


@pytest.mark.shows("R-CFG-68")
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ulr = 'x'", "forebay.toml: there is no setting 'ulr'; did you mean url?"),
        (
            "colour = 'x'",
            "forebay.toml: there is no setting 'colour'; the settings are actor, allow_webhooks_to, ",
        ),
        ("threads = 'many'", "forebay.toml: threads is wrong: Expected `int`, got `str`"),
        ("url = ", "forebay.toml is not a TOML file: "),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(folder: Path, text: str, complaint: str) -> None:
    (folder / "forebay.toml").write_text(text)

    with pytest.raises(ConfigError) as caught:
        read_settings()

    assert str(caught.value).startswith(complaint)


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_THREADS", "many")

    with pytest.raises(ConfigError, match="FOREBAY_THREADS is wrong"):
        read_settings()


def test_an_empty_variable_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_URL", "")

    assert read_settings().found == {}


def test_a_file_that_is_named_takes_the_place_of_the_usual_ones(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "forebay.toml").write_text('url = "usual"')
    (folder / "other.toml").write_text('app = "o"')
    monkeypatch.setenv("FOREBAY_CONFIG", "other.toml")

    assert list(read_settings().found) == ["app"]
    with pytest.raises(ConfigError, match=r"missing\.toml cannot be read"):
        read_settings(config="missing.toml")


def test_a_project_without_our_table_sets_nothing(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[project]\nname = 'x'\n")

    assert read_settings().found == {}


def test_our_table_must_be_a_table(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool]\nforebay = 3\n")

    with pytest.raises(ConfigError, match="must be a table of settings"):
        read_settings()


def test_queues_may_be_a_list_or_a_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "forebay.toml").write_text('queues = ["a", "b"]')
    assert read_settings().worker_defaults() == {"queues": "a,b"}

    monkeypatch.setenv("FOREBAY_QUEUES", "c,d")
    assert read_settings().worker_defaults() == {"queues": "c,d"}


def test_masked_names_may_be_a_list_or_a_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_settings().masked_names == []
    (folder / "forebay.toml").write_text('masked_names = ["iban", "ssn"]')
    assert read_settings().masked_names == ["iban", "ssn"]
    monkeypatch.setenv("FOREBAY_MASKED_NAMES", "iban, tax_id,")
    assert read_settings().masked_names == ["iban", "tax_id"]


def test_an_actor_is_no_text_that_the_audit_log_would_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "root#1")
    assert read_settings().actor.startswith("cli:root_1@")
    monkeypatch.setenv("FOREBAY_ACTOR", "root#1")
    with pytest.raises(ConfigError, match="'root#1' cannot be an actor of the audit log"):
        _ = read_settings().actor


def test_a_variable_that_is_no_setting_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_ULR", "x")

    assert unknown_variables() == ["FOREBAY_ULR"]


def test_the_reference_names_every_setting() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")

    missing = [
        name for name in SETTING_TYPES if f"`{name}`" not in page or f"`FOREBAY_{name.upper()}`" not in page
    ]
    assert missing == []
