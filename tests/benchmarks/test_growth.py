"""`make bench WHAT=growth` measures, goes on where it was stopped, and draws what browsers can read."""

from __future__ import annotations

import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import growth
from benchmarks.compare.servers import server
from benchmarks.compare.systems import TOP
from benchmarks.growth import PARTS, Point, draw, keep, kept, measured, missing, shown, wait
from benchmarks.plots import Panel, short, svg


def point(at: int, per_second: float = 10.0) -> Point:
    return Point(at=at, per_second=per_second, p99_ms=1.5, cpu_us=20.0, about="2 cores, load 0.50, 1, 2")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(growth, "KEPT", tmp_path)
    return tmp_path


def test_a_point_is_measured_while_the_backlog_stays_as_it_is() -> None:
    with server("sqlite") as made:
        made.empty()
        wait(made.url, 300)

        found = measured(made, 300, 1.0)

    assert found.at == 300
    assert found.per_second > 0
    assert found.p99_ms > 0


def test_what_is_kept_is_not_measured_again(folder: Path) -> None:
    keep("redis", "history", point(10_000))
    keep("redis", "history", point(1_000))

    assert [one.at for one in kept("redis", "history")] == [1_000, 10_000]
    assert missing("redis", "history", 10_000_000) == [100_000, 1_000_000]
    assert missing("postgres", "history", 10_000_000)[-1] == 5_000_000
    assert missing("redis", "backlog", 10_000) == [1_000, 10_000]


@pytest.mark.parametrize("part", PARTS)
def test_plots_and_tables_show_every_engine_that_was_measured(part: str, folder: Path) -> None:
    for engine in ("sqlite", "redis"):
        for size in PARTS[part][1][:2]:
            keep(engine, part, point(size, per_second=12_345))

    draw(part, folder)

    drawn = ElementTree.fromstring((folder / f"growth-{part}.svg").read_text())  # noqa: S314 - our own
    words = [found.text for found in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"sqlite", "redis", "jobs a second", "p99 of a call, ms", "CPU of a job, us"} <= set(words)
    assert "postgres" not in words
    assert "2 cores, load 0.5 to 0.5" in words
    assert "12,345/s, 1.5 ms, 20 us" in "\n".join(shown(part))


def test_a_plot_has_a_line_for_each_name_and_is_readable_on_dark_pages() -> None:
    lines = {"a": [(10, 1.0), (1_000, 3.0)], "<b>": [(10, 2.0)]}

    drawn = svg("Title", [Panel(title="speed", across="size", lines=lines)])

    assert drawn.count("<polyline") == 2
    assert "&lt;b&gt;" in drawn
    assert "prefers-color-scheme: dark" in drawn


def test_numbers_on_axes_are_short() -> None:
    assert [short(value) for value in (0, 0.25, 100, 2_400, 1_000_000)] == ["0", "0.25", "100", "2.4k", "1M"]


def test_make_leaves_no_engine_out_by_itself() -> None:
    def printed(*words: str) -> str:
        command = ["make", "--dry-run", "--old-file=.venv/.ready-test", "growth", *words]
        return subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True).stdout

    assert "--engine" not in printed()
    assert "--engine redis" in printed("ENGINE=redis")
