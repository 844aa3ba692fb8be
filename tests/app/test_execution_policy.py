"""How the jobs of a task are run, as `app.task` was told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from forebay import ConfigError, Forebay, InvalidJob

MB = 2**20


def isolated(**options: Any) -> Any:
    app = Forebay("memory://")
    return app.task(name="t", **options)(lambda: None).execution_policy


def test_a_task_is_not_isolated_unless_it_says_so() -> None:
    assert (isolated().isolated, isolated().memory_limit) == (False, None)


@pytest.mark.parametrize(
    ("memory", "count"),
    [
        ("512MB", 512 * MB),
        ("2GB", 2_048 * MB),
        ("1.5 g", 1_536 * MB),
        ("64m", 64 * MB),
        ("33554432", 32 * MB),
        (48 * MB, 48 * MB),
        ("1TB", 2**40),
    ],
)
def test_memory_is_a_number_of_bytes_or_a_text(memory: int | str, count: int) -> None:
    assert isolated(isolated=True, memory_limit=memory).memory_limit == count


@pytest.mark.parametrize("memory", ["much", "", "-1GB", "1 MB more", "\uff11GB", True, 1.5, b"1GB", [1]])
def test_memory_that_is_no_size_is_refused(memory: Any) -> None:
    with pytest.raises(
        ConfigError, match='memory_limit must be a number of bytes or a text like "512MB" or "2GB", not '
    ):
        isolated(isolated=True, memory_limit=memory)


@pytest.mark.parametrize("memory", [0, 1, "31MB", "2TB", 2**40 + 1])
def test_memory_that_no_process_could_live_with_is_refused(memory: int | str) -> None:
    with pytest.raises(ConfigError, match="memory_limit must be from 32MB to 1,024GB, not "):
        isolated(isolated=True, memory_limit=memory)


def test_memory_without_a_process_of_its_own_is_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match="give isolated=True too, or leave memory_limit out"):
        isolated(memory_limit="512MB")


@pytest.mark.parametrize(
    ("grace", "seconds"), [(None, 5.0), (0, 0.0), (0.5, 0.5), (timedelta(minutes=1), 60.0), (3_600, 3_600.0)]
)
def test_grace_is_a_length_of_time_and_five_seconds_by_default(grace: Any, seconds: float) -> None:
    assert isolated(isolated=True, grace=grace).grace == seconds


@pytest.mark.parametrize("grace", [-1, 3_601, "long", True, float("nan"), timedelta(days=1)])
def test_grace_that_is_no_length_or_has_no_end_is_refused(grace: Any) -> None:
    with pytest.raises(InvalidJob, match="grace must be "):
        isolated(isolated=True, grace=grace)


def test_grace_without_a_process_of_its_own_is_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match="give isolated=True too, or leave grace out"):
        isolated(grace=1)


@pytest.mark.parametrize("name", ["isolated", "retry_on_timeout"])
def test_a_flag_that_is_no_bool_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be True or False, not 1"):
        isolated(**{name: 1})
