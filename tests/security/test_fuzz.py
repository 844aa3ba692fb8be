"""Whatever arrives at a parser is understood or refused by a typed error, in a bounded number of steps."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final
from zlib import crc32

import click
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from forebay.app.execution_policy import make_execution_policy
from forebay.cli.job_filters import parse_pair
from forebay.cli.options import parse_duration_ms, parse_instant_ms
from forebay.cli.redaction import redact
from forebay.domain.cron import parse_cron
from forebay.domain.durations_and_instants import duration_within
from forebay.domain.job import LATEST_AT, NewJob
from forebay.domain.job_query import page_end
from forebay.domain.job_validation import MAX_PAYLOAD, check_metadata
from forebay.domain.json_values import MAX_DEPTH
from forebay.domain.storable_text import clean_text, truncate_bytes
from forebay.domain.time_zone import zone_of
from forebay.domain.ulid import decode_ulid, encode_ulid
from forebay.errors import ForebayError, InvalidJob, PayloadError
from forebay.payload.codec import decode_call, decode_result, encode_call, encode_result
from forebay.payload.typed_json import TAGS
from forebay.stores.factory import open_engine
from forebay.stores.redis.key_layout import tag
from forebay.stores.url_redaction import redact_url

# The same cases in each run: one that fails is found by the developer who has changed the code, and by no
# other.
same = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=150,
    suppress_health_check=list(HealthCheck),
)
HIDDEN: Final = "hunter2"
# The days of a century, several calls for each.
MOST_CALLS: Final = 500_000

texts = st.text(max_size=40) | st.text(alphabet=st.characters(), max_size=40)
jsons = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(2**80), max_value=2**80)
    | st.floats(allow_nan=False)
    | st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.sampled_from(["~", "\x00", "\U0001f600", "\u202e", "2026-01-02", ""]),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(
            st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8) | st.just("~"),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)
# What an attacker writes who knows the format.
hostile = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**63), max_value=2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.sampled_from(
        ["0x" + "f" * 5_000, "sNaN", "1E+999999999", "9999-12-31T23:59:59+23:59", "-0.0000001", "P1D"]
    ),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.fixed_dictionaries({"~": st.sampled_from([*TAGS, "class", ""]) | inner, "v": inner})
        | st.dictionaries(st.sampled_from(["~", "v", "a", "__class__"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@contextmanager
def few_steps(most: int = MOST_CALLS) -> Iterator[None]:
    """Fails what makes more calls than this, however fast the machine is, instead of waiting for its end."""
    calls = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > most:
            sys.setprofile(before)
            raise AssertionError(f"more than {most:,} calls")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)


def refusal(call: Callable[[], object], *kinds: type[Exception]) -> Exception | None:
    """The typed error that a call ends with, if it is refused; any other gets out."""
    try:
        call()
    except Exception as exc:
        if not isinstance(exc, (ForebayError, *kinds)):
            raise
        assert 0 < len(str(exc)) < 1_000  # noqa: PT017 - it need not be raised
        return exc
    return None


def under_checksum(body: bytes, fields: bytes = b"") -> bytes:
    rest = fields + b"\n" + body
    return b"fb1 %08x%b" % (crc32(rest), rest)


# ------------------------------------------------------------------ payloads


def read_or_refuse(data: bytes) -> None:
    for decode in (decode_call, decode_result):
        refused = refusal(partial(decode, data))
        assert refused is None or (isinstance(refused, PayloadError) and refused.field == "payload")


@pytest.mark.shows("R-SEC-02", "R-SER-20")
@same
@given(st.binary(max_size=200))
@example(b"")
@example(b"fb0 ")
@example(b"fb0 gone ")
@example(b"fb0 gone \n")
@example(b"fb1 ")
@example(b"fb999999999 00000000\n")
@example(b"\x80\x04\x95")
def test_any_bytes_are_a_payload_or_refused(data: bytes) -> None:
    read_or_refuse(data)
    read_or_refuse(under_checksum(data))


@pytest.mark.shows("R-SEC-02", "R-SER-20")
@same
@given(st.binary(max_size=30).filter(lambda fields: b"\n" not in fields), st.binary(max_size=30))
def test_any_header_is_read_or_refused(fields: bytes, body: bytes) -> None:
    read_or_refuse(under_checksum(body, fields))
    read_or_refuse(under_checksum(body, b" key=" + fields))


@pytest.mark.shows("R-SEC-01", "R-SEC-02", "R-SER-20")
@same
@given(hostile)
@example({"~": "map", "v": [[[], 1]]})
@example({"~": "set", "v": [{"~": "decimal", "v": "sNaN"}]})
@example({"~": "map", "v": [[1]]})
@example({"~": "datetime", "v": "0001-01-01T00:00:00+23:59"})
@example({"~": "timedelta", "v": "999999999999999"})
def test_any_tags_are_read_or_refused(value: Any) -> None:
    call = {"v": 1, "args": [value], "kwargs": {"~": value}}
    read_or_refuse(under_checksum(json.dumps(call).encode()))
    read_or_refuse(under_checksum(json.dumps({"v": 1, "result": value}).encode()))
    read_or_refuse(under_checksum(json.dumps(value).encode()))


@pytest.mark.shows("R-SER-12", "R-SER-14")
@same
@given(jsons)
def test_every_json_value_comes_back_as_it_was(value: Any) -> None:
    args, kwargs = decode_call(encode_call((value,), {"~": value}))

    assert (repr(args), repr(kwargs)) == (repr((value,)), repr({"~": value}))
    assert repr(decode_result(encode_result(value))) == repr(value)


@pytest.mark.shows("R-SER-24")
@same
@given(st.text(alphabet=st.characters(categories=["Cs"]), min_size=1, max_size=3), texts)
def test_half_a_surrogate_pair_is_refused_with_its_place(half: str, text: str) -> None:
    for value in (half, [text, half], {half: 1}):
        with pytest.raises(PayloadError, match="surrogate"):
            encode_call((value,), {})
        with pytest.raises(PayloadError, match="surrogate"):
            encode_result(value)


@pytest.mark.shows("R-SEC-10")
@pytest.mark.parametrize("brackets", [(b"[", b"]"), (b'{"a":', b"}"), (b'{"~":"tuple","v":[', b"]}")])
def test_json_that_is_nested_beyond_reason_is_refused(brackets: tuple[bytes, bytes]) -> None:
    start, end = brackets
    levels = MAX_PAYLOAD // (len(start) + len(end)) - 20
    deep = start * levels + b"1" + end * levels

    for body in (b'{"v":1,"args":[%b],"kwargs":{}}' % deep, b'{"v":1,"result":%b}' % deep, deep):
        read_or_refuse(under_checksum(body))
        with pytest.raises(PayloadError):
            decode_call(under_checksum(body))


@pytest.mark.shows("R-SEC-10", "R-ENQ-23")
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 100_000])
def test_a_value_that_is_nested_too_deeply_is_refused_before_it_is_stored(depth: int) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value]

    with pytest.raises(PayloadError, match="nested deeper than 100 levels") as caught:
        encode_call((), {"tree": value})
    assert (caught.value.field or "").startswith('kwargs["tree"]')
    with pytest.raises(PayloadError, match="nested deeper than 100 levels"):
        encode_result(value)
    with pytest.raises(InvalidJob, match="metadata"):
        check_metadata({"a": value} if depth > 1_000 else {"a": "x" * 70_000})


# ------------------------------------------------------------------ addresses

schemes = st.sampled_from(["postgresql", "redis", "rediss", "redis+sentinel", "memory", "mysql", "", "http"])
odd = st.text(alphabet=st.sampled_from("ab:/@?#&=%[]\\ ;,'\"0\x00\u2100é"), max_size=12)


@pytest.mark.shows("R-SEC-08", "R-SEC-02")
@same
@given(schemes, odd, odd, odd, odd)
@example("postgresql", "", "", "", "")
@example("redis", ":", "/", "?", "#")
def test_no_address_gives_its_password_away(
    scheme: str, user: str, before: str, after: str, end: str
) -> None:
    user = user.replace(":", "").replace("@", "").replace("/", "").replace("?", "").replace("#", "")
    url = f"{scheme}://{user}:{before}{HIDDEN}{after}@host/{end.replace('@', '')}"

    shown = [redact_url(url), redact(redact_url(url))]
    refused = refusal(lambda: shown.append(open_engine(url).location))
    if refused is not None:
        shown.append("".join(traceback.format_exception(refused, limit=0)) + repr(refused))
    assert HIDDEN not in "".join(shown)


@pytest.mark.shows("R-SEC-02")
@same
@given(texts)
@example("sqlite:///\x00")
@example("postgresql://[")
@example("redis://host:99999999999999999999/0")
@example("redis://host/99999999999999999999999")
def test_any_text_is_an_address_or_refused(url: str) -> None:
    for address in (url, f"sqlite:///{url}", f"redis://host/{url}", f"postgresql://host/{url}?{url}"):
        refusal(partial(open_engine, address))


# ------------------------------------------------------------------ times, sizes, names

cron_words = st.text(alphabet=st.sampled_from("0123456789*/-,?#LWMONJAFEBSTU@ "), max_size=40)


@pytest.mark.shows("R-SEC-02")
@same
@given(cron_words | st.text(max_size=30), st.integers(min_value=0, max_value=4_000_000_000))
@example("0 0 29 2 *", 951_868_800)
@example("59 59 23 31 12 ?", 0)
@example("* * 30 2 *", 0)
@example("0 0 31 2,4,6,9,11 MON#5", 0)
@example("*/" + "9" * 5_000 + " * * * *", 0)
@example(",".join(["1-59/7"] * 3_000) + " * * * *", 0)
@example("0 0 * * " + "L" * 10_000, 0)
def test_any_text_is_a_cron_line_or_refused_in_few_steps(line: str, after: int) -> None:
    with few_steps():
        if refusal(lambda: parse_cron(line)) is None:
            for zone in ("UTC", "America/New_York", "Australia/Lord_Howe"):
                found = parse_cron(line).next_after(after, zone_of(zone))
                assert found is None or found > after


@pytest.mark.shows("R-SEC-02")
@same
@given(texts)
@example("9" * 5_000)
@example("1e309d")
@example("-1s")
@example("nan")
@example("0x10")
@example("٣h")
def test_any_text_is_a_length_an_instant_or_a_size_or_refused(text: str) -> None:
    for parse in (parse_duration_ms, parse_instant_ms, page_end, zone_of, tag, decode_ulid):
        refusal(partial(parse, text), ValueError)
    refusal(lambda: make_execution_policy((), None, True, True, text, None))
    refusal(lambda: parse_pair(text), click.BadParameter)


@pytest.mark.shows("R-SEC-02")
@same
@given(st.floats() | st.integers() | st.timedeltas())
def test_any_number_is_a_length_of_time_or_refused(value: Any) -> None:
    refused = refusal(lambda: duration_within("delay", value, 0, LATEST_AT))

    assert refused is None or (isinstance(refused, InvalidJob) and refused.field == "delay")


@pytest.mark.shows("R-SEC-02")
@same
@given(st.integers(min_value=0, max_value=2**128 - 1))
def test_every_id_is_read_as_it_was_written(bits: int) -> None:
    assert decode_ulid(encode_ulid(bits)) == bits


@pytest.mark.shows("R-SEC-02")
@same
@given(st.text(alphabet=st.characters(), max_size=30), st.integers(min_value=0, max_value=40))
def test_cleaned_text_can_be_held_by_every_store(text: str, most: int) -> None:
    cleaned = clean_text(text)

    assert "\x00" not in cleaned
    assert cleaned.encode().decode() == cleaned
    assert clean_text(cleaned) == cleaned
    assert len(truncate_bytes(cleaned, most).encode()) <= most
    assert cleaned.startswith(truncate_bytes(cleaned, most))


@pytest.mark.shows("R-SEC-02", "R-SEC-10")
@same
@given(st.text(alphabet=st.characters(), max_size=220))
def test_any_text_names_a_part_of_a_job_or_is_refused_with_the_part(text: str) -> None:
    fields: dict[str, Any] = {
        "task": text,
        "queue": text,
        "id": text,
        "unique_key": text,
        "idempotency_key": text,
        "correlation_id": text,
        "parent_id": text,
        "sequence": text,
        "client": text,
        "tags": (text,),
        "limit_keys": {"host": text},
    }

    for field, value in fields.items():
        refused = refusal(partial(NewJob, **{"task": "t", field: value}))
        assert refused is None or (isinstance(refused, InvalidJob) and refused.field == field)
