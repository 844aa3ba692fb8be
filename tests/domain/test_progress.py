"""What a store keeps of a note: bounded, clean, and with the first step of a name."""

from __future__ import annotations

import pytest

from forebay.domain.job import JobId
from forebay.domain.lease import Lease
from forebay.domain.progress import (
    MAX_LEVEL,
    MAX_LINE,
    MAX_LINES,
    MAX_STEP_BYTES,
    MAX_STEP_NAME,
    MAX_STEPS,
    MAX_STORED_STEP_BYTES,
    JobProgress,
    LogLine,
    Progress,
    ProgressUpdate,
    StepResult,
    check_step_bytes,
    check_step_name,
    normalize_update,
    number_at,
)
from forebay.errors import InvalidJob, PayloadError

LEASE = Lease(JobId("a"), 3)


def line(text: str) -> LogLine:
    return LogLine(at=1, level="info", text=text)


def step(name: str, result: bytes = b"1") -> StepResult:
    return StepResult(name=name, result=result)


def test_an_empty_note_leaves_nothing() -> None:
    assert normalize_update(ProgressUpdate(lease=LEASE), 9) == JobProgress()


def test_attempt_and_time_are_the_leases_and_the_stores_but_a_line_has_its_own_time() -> None:
    update = ProgressUpdate(lease=LEASE, progress=Progress(done=1), lines=(line("x"),), steps=(step("s"),))

    kept = normalize_update(update, 9)

    assert kept.progress == Progress(done=1, attempt=3, at=9)
    assert kept.lines == (LogLine(at=1, level="info", text="x", attempt=3),)
    assert kept.steps == (StepResult(name="s", result=b"1", attempt=3, at=9),)


def test_texts_are_cut_and_clean() -> None:
    update = ProgressUpdate(
        lease=LEASE,
        progress=Progress(message="\x00" + "m" * MAX_LINE),
        lines=(LogLine(at=1, level="\x00", text="x" * (MAX_LINE + 1)), line("\udc80")),
    )

    kept = normalize_update(update, 9)

    assert kept.progress is not None
    assert kept.progress.message == "␀" + "m" * (MAX_LINE - 1)
    assert [(one.level, one.text) for one in kept.lines] == [("␀", "x" * MAX_LINE), ("info", "?")]


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan"), 10**400])
def test_numbers_that_no_store_holds_are_left_out(number: float) -> None:
    kept = normalize_update(ProgressUpdate(lease=LEASE, progress=Progress(done=number, total=number)), 9)

    assert kept.progress == Progress(done=0, total=None, attempt=3, at=9)


def test_a_total_of_nothing_stays() -> None:
    kept = normalize_update(ProgressUpdate(lease=LEASE, progress=Progress(done=0, total=0)), 9)

    assert kept.progress == Progress(done=0, total=0, attempt=3, at=9)


def test_of_too_many_lines_the_last_stay() -> None:
    update = ProgressUpdate(lease=LEASE, lines=tuple(line(str(number)) for number in range(MAX_LINES + 2)))

    kept = normalize_update(update, 9)

    assert (len(kept.lines), kept.lines[0].text) == (MAX_LINES, "2")


def test_later_notes_join_earlier_ones() -> None:
    old = JobProgress(progress=Progress(done=1), lines=(line("a"),), steps=(step("s", b"old"),))

    joined = old.merge(JobProgress(lines=(line("b"),), steps=(step("s", b"new"), step("t"))))

    assert joined == JobProgress(
        progress=Progress(done=1), lines=(line("a"), line("b")), steps=(step("s", b"old"), step("t"))
    )
    assert joined.merge(JobProgress(progress=Progress(done=2))).progress == Progress(done=2)


def test_joined_notes_keep_the_last_lines_and_the_first_steps() -> None:
    old = JobProgress(
        lines=tuple(line("old") for _ in range(MAX_LINES)),
        steps=tuple(step(str(number)) for number in range(MAX_STEPS - 1)),
    )

    joined = old.merge(JobProgress(lines=(line("new"),), steps=(step("fits"), step("too many"))))

    assert [one.text for one in joined.lines] == ["old"] * (MAX_LINES - 1) + ["new"]
    assert (len(joined.steps), joined.steps[-1].name) == (MAX_STEPS, "fits")


def test_results_of_steps_are_bounded_together() -> None:
    half = b"x" * (MAX_STORED_STEP_BYTES // 2)
    full = JobProgress(steps=(step("a", half), step("b", half)))

    assert full.merge(JobProgress(steps=(step("a", half), step("c", b"")))).steps[2:] == (step("c", b""),)
    with pytest.raises(PayloadError, match=r"step 'c' brings the results of .* to 4,450,305 bytes"):
        full.merge(JobProgress(steps=(step("c", b"1"),)))
    check_step_bytes("a", MAX_STEP_BYTES)
    with pytest.raises(PayloadError, match="the limit is 4,194,304; return less from steps"):
        check_step_bytes("a", MAX_STEP_BYTES + 1)


def test_a_line_that_is_offered_again_is_known_by_its_number() -> None:
    first, second = (LogLine(at=1, level="info", text="x", attempt=3, number=one) for one in (1, 2))
    plain = LogLine(at=1, level="info", text="x", attempt=3)
    job_progress = JobProgress(lines=(first,))

    assert job_progress.merge(JobProgress(lines=(first, second))).lines == (first, second)
    assert JobProgress(lines=(plain,)).merge(JobProgress(lines=(plain,))).lines == (plain, plain)


def test_the_place_of_a_line_tells_its_attempt_and_number() -> None:
    early, late = (LogLine(at=1, level="info", text="x", attempt=one, number=7) for one in (3, 4))

    assert early.position is not None
    assert late.position is not None
    assert early.position < late.position
    assert [number_at(early.position, 3), number_at(late.position, 4), number_at(12, 3)] == [7, 7, 0]
    assert LogLine(at=1, level="info", text="x", attempt=3).position is None


def test_a_level_is_cut() -> None:
    long = LogLine(at=1, level="x" * 1_000, text="t")

    [kept] = normalize_update(ProgressUpdate(lease=LEASE, lines=(long,)), 9).lines

    assert kept.level == "x" * MAX_LEVEL


@pytest.mark.parametrize("name", ["", "n" * (MAX_STEP_NAME + 1), "a\x00b", "\ud800", 7])
def test_a_name_that_no_step_can_have_is_refused(name: object) -> None:
    with pytest.raises(InvalidJob, match="the name of a step must be a text of 1 to 200 characters"):
        check_step_name(name)


def test_the_longest_name_of_a_step_is_fine() -> None:
    check_step_name("n" * MAX_STEP_NAME)


def test_the_results_of_all_steps_have_a_bound_together() -> None:
    check_step_bytes("last", MAX_STEP_BYTES)

    with pytest.raises(
        PayloadError, match=r"'last' .* to 4,194,305 bytes, the limit is 4,194,304;"
    ) as refused:
        check_step_bytes("last", MAX_STEP_BYTES + 1)

    assert refused.value.field == "result"
