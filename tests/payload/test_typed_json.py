"""Values and their tags: exact round trips, stored texts, and what is refused in which words."""

from __future__ import annotations

import asyncio
import io
import json
import math
import socket
import sqlite3
import sys
import tempfile
import threading
import zlib
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forebay.errors import CorruptPayload, PayloadError
from forebay.payload.codec import decode_result, encode_call, encode_result
from forebay.payload.typed_json import TAGS, TypeMismatch, tag, untag

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "payloads.md"
# On a busy machine a slow example says nothing about the code.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
MANILA = timezone(timedelta(hours=8))


def round_trip(value: Any) -> Any:
    return decode_result(encode_result(value))


def same(left: Any, right: Any) -> bool:
    """Equal with equal types all the way down; NaN is itself, and -0.0 is not 0.0."""
    if type(left) is not type(right):
        return False
    match left:
        case list() | tuple():
            return len(left) == len(right) and all(map(same, left, right))
        case dict():
            return list(map(key_of, left.items())) == list(map(key_of, right.items()))
        case set() | frozenset():
            return {key_of(item) for item in left} == {key_of(item) for item in right}
    return bool(key_of(left) == key_of(right))


def key_of(value: Any) -> Any:
    match value:
        case float() if math.isnan(value):
            return ("float", "nan")
        case float():
            return ("float", value.hex())
        case Decimal():
            return ("decimal", value.as_tuple())
        case list() | tuple():
            return (type(value), tuple(map(key_of, value)))
        case dict():
            return (dict, tuple(map(key_of, value.items())))
        case set() | frozenset():
            return (type(value), frozenset(map(key_of, value)))
    return (type(value), value)


# ------------------------------------------------------------------ round trips

plain = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from(["~", "v", "2026-01-02", "2026-01-02T03:04:05Z", "1.0", "null", ""])
)
moments = st.datetimes(timezones=st.just(UTC))
rich = (
    moments
    | st.dates()
    | st.times()
    | st.times(timezones=st.just(MANILA))
    | st.timedeltas()
    | st.decimals()
    | st.uuids()
    | st.binary()
)
# NaN is not equal to itself, and a signalling one cannot even be hashed.
hashable = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.decimals(allow_nan=False)
    | moments
    | st.timedeltas()
    | st.uuids()
    | st.binary(),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
values = st.recursive(
    plain | rich,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])) | st.just("~"), inner, max_size=4)
        | st.dictionaries(hashable, inner, max_size=3)
        | st.sets(hashable, max_size=3)
        | st.frozensets(hashable, max_size=3)
    ),
    max_leaves=20,
)


@pytest.mark.shows("R-TEST-61", "R-TEST-62")
@pytest.mark.shows(
    "R-SER-06", "R-SER-07", "R-SER-08", "R-SER-09", "R-SER-10", "R-SER-12", "R-SER-13", "R-BUG-25"
)
@patient
@given(values)
def test_every_value_comes_back_as_it_was(value: Any) -> None:
    assert same(round_trip(value), value)


@patient
@given(values)
def test_equal_values_give_equal_bytes(value: Any) -> None:
    assert encode_result(round_trip(value)) == encode_result(value)


@patient
@given(values)
def test_the_stored_form_is_json_for_all_readers(value: Any) -> None:
    body = encode_result(value).partition(b"\n")[2]

    assert set(json.loads(body, parse_constant=pytest.fail)) == {"v", "result"}


@patient
@given(
    st.lists(st.integers(), min_size=17) | st.lists(st.floats(), min_size=17) | st.lists(plain, min_size=17)
)
def test_long_lists_come_back_as_they_were(value: list[Any]) -> None:
    assert same(round_trip(value), value)


@patient
@given(st.sampled_from([*TAGS, "new"]), values.map(tag) | st.text())
def test_any_content_of_a_tag_is_read_or_refused_and_nothing_else(name: str, content: Any) -> None:
    with suppress(TypeMismatch):
        untag({"~": name, "v": content})


# ------------------------------------------------------------------ the stored texts

STORED: list[tuple[Any, str]] = [
    (datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), '{"~":"datetime","v":"2026-01-02T03:04:05.000006Z"}'),
    (datetime(2026, 1, 2, 8, tzinfo=MANILA), '{"~":"datetime","v":"2026-01-02T00:00:00.000000Z"}'),
    (datetime.min.replace(tzinfo=UTC), '{"~":"datetime","v":"0001-01-01T00:00:00.000000Z"}'),
    (date(2026, 1, 2), '{"~":"date","v":"2026-01-02"}'),
    (time(3, 4), '{"~":"time","v":"03:04:00.000000"}'),
    (time(3, 4, tzinfo=MANILA), '{"~":"time","v":"03:04:00.000000+08:00"}'),
    (timedelta(days=1, microseconds=5), '{"~":"timedelta","v":"86400.000005"}'),
    (timedelta(microseconds=-1), '{"~":"timedelta","v":"-0.000001"}'),
    (timedelta.min, '{"~":"timedelta","v":"-86399999913600.000000"}'),
    (timedelta.max, '{"~":"timedelta","v":"86399999999999.999999"}'),
    (Decimal("1.10"), '{"~":"decimal","v":"1.10"}'),
    (Decimal("-1E+5"), '{"~":"decimal","v":"-1E+5"}'),
    (UUID("0188C0DE-0000-7000-8000-00000000ABCD"), '{"~":"uuid","v":"0188c0de-0000-7000-8000-00000000abcd"}'),
    (b"\x00\xff", '{"~":"bytes","v":"AP8="}'),
    ((1, "a"), '{"~":"tuple","v":[1,"a"]}'),
    ({3, 1, 2}, '{"~":"set","v":[1,2,3]}'),
    (frozenset({"b", "a"}), '{"~":"frozenset","v":["a","b"]}'),
    ({1: "a"}, '{"~":"map","v":[[1,"a"]]}'),
    ({(1, 2): 3}, '{"~":"map","v":[[{"~":"tuple","v":[1,2]},3]]}'),
    ({"~": "a", "b": 1}, '{"~":"map","v":[["~","a"],["b",1]]}'),
    (2**63 - 1, "9223372036854775807"),
    (-(2**63), "-9223372036854775808"),
    (2**63, '{"~":"int","v":"0x8000000000000000"}'),
    (-(2**63) - 1, '{"~":"int","v":"-0x8000000000000001"}'),
    (float("inf"), '{"~":"float","v":"inf"}'),
    (float("-inf"), '{"~":"float","v":"-inf"}'),
    (-0.0, "-0.0"),
    ("\x00é\u2028😀", '"\\u0000é\u2028😀"'),
]


@pytest.mark.shows("R-SER-06", "R-SER-07", "R-SER-08", "R-SER-09", "R-SER-10", "R-SER-13", "R-SER-22")
@pytest.mark.parametrize(("value", "text"), STORED)
def test_the_stored_text_of_each_kind_never_changes(value: Any, text: str) -> None:
    body = encode_result(value).partition(b"\n")[2].decode()

    assert body == f'{{"v":1,"result":{text}}}'
    assert round_trip(value) == value


@pytest.mark.shows("R-SER-22")
@pytest.mark.parametrize("name", TAGS)
def test_the_reference_page_describes_each_tag(name: str) -> None:
    assert f"| `{name}` |" in PAGE.read_text()


@pytest.mark.parametrize("text", [text for _, text in STORED if "~" in text])
def test_the_tags_of_the_page_are_those_that_are_written(text: str) -> None:
    assert json.loads(text)["~"] in TAGS


def test_nan_is_stored_by_name() -> None:
    assert tag(float("nan")) == {"~": "float", "v": "nan"}


@pytest.mark.shows("R-SER-14", "R-BUG-25")
@pytest.mark.parametrize("text", ["2026-01-02", "2026-01-02T03:04:05Z", "1.10", "03:04:05", "AP8=", "0x10"])
def test_texts_that_look_like_something_else_stay_texts(text: str) -> None:
    assert round_trip([text, {text: text}]) == [text, {text: text}]


@pytest.mark.shows("R-SER-15")
def test_a_naive_datetime_is_taken_as_utc() -> None:
    naive = datetime(2026, 1, 2, 3, 4, 5, 6)  # noqa: DTZ001 - that is what is tested

    assert round_trip(naive) == naive.replace(tzinfo=UTC)


@pytest.mark.shows("R-SER-06")
def test_a_datetime_of_any_zone_comes_back_as_the_same_moment_in_utc() -> None:
    there = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Paris"))

    back = round_trip(there)

    assert back == there
    assert back.tzinfo is UTC


def test_an_int_of_any_size_comes_back() -> None:
    assert round_trip(7**20_000) == 7**20_000


class Fast(StrEnum):
    YES = "yes"


class Number(IntEnum):
    ONE = 1


class Kind(Enum):
    A = ("a", 1)


class Pair(NamedTuple):
    a: int
    b: int


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


class Whole(int):
    pass


class Real(float):
    pass


class Names(list[str]):
    pass


class Instant(datetime):
    def isoformat(self, sep: str = "T", timespec: str = "auto") -> str:
        return "now"


@pytest.mark.shows("R-SER-11")
@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (Fast.YES, "yes"),
        (Number.ONE, 1),
        (Kind.A, ("a", 1)),
        ({Fast.YES: 1}, {"yes": 1}),
        (Pair(1, 2), (1, 2)),
        (Text("a"), "a"),
        ({Text("a"): 1}, {"a": 1}),
        (Whole(5), 5),
        (Whole(2**70), 2**70),
        (Real(1.5), 1.5),
        (Names(["a"]), ["a"]),
        (OrderedDict(a=1), {"a": 1}),
        (Counter("aab"), {"a": 2, "b": 1}),
        (Instant(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_subclass_comes_back_as_what_it_is_built_on(value: Any, stored: Any) -> None:
    assert same(round_trip(value), stored)


# ------------------------------------------------------------------ what is refused


@dataclass(frozen=True)
class Point:
    x: Any


class Person(msgspec.Struct, frozen=True):
    photo: Any


class Unordered(Enum):
    A = object()


class Mapped:
    _sa_class_manager = None


class Model:
    """Looks like Django's, which is not installed here."""


Model.__module__, Model.__qualname__ = "django.db.models.base", "Model"


class Article(Model):
    pass


def generate() -> Iterator[int]:
    yield 1


async def agenerate() -> Any:
    yield 1


def refused_path(value: Any) -> str | None:
    with pytest.raises(PayloadError) as caught:
        encode_call((value,), {})
    return caught.value.field


@pytest.mark.shows("R-ENQ-29", "R-EDGE-20", "R-SER-24")
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (lambda: 1, "a lambda cannot be stored; make it a task"),
        (generate, "the function generate cannot be stored; make it a task"),
        (len, "a function cannot be stored"),
        ([].append, "a function cannot be stored"),
        (Point(1).__hash__, "a function cannot be stored"),
        (Text("a").join, "a function cannot be stored"),
        (partial(len, "a"), "a function cannot be stored"),
        (int, "a class cannot be stored; pass its name"),
        (Kind, "a class cannot be stored"),
        (Point, "a class cannot be stored"),
        (math, "a module cannot be stored"),
        (ModuleType("made"), "a module cannot be stored"),
        (generate(), "a generator cannot be stored; pass a list"),
        (agenerate(), "a generator cannot be stored; pass a list"),
        (Future(), "a future cannot be stored"),
        (io.BytesIO(), "an open file cannot be stored; pass its path"),
        (sys.__stdout__, "an open file cannot be stored; pass its path"),
        (Path("x"), "a path object cannot be stored; pass str(path)"),
        (threading.Lock(), "a lock cannot be stored"),
        (threading.RLock(), "a lock cannot be stored"),
        (threading.Event(), "a lock cannot be stored"),
        (asyncio.Lock(), "a lock cannot be stored"),
        (threading.Thread(), "a thread cannot be stored"),
        (ValueError("x"), "an exception cannot be stored; pass its text"),
        (bytearray(b"x"), "pass bytes(value)"),
        (memoryview(b"x"), "pass bytes(value)"),
        (deque([1]), "pass list(value)"),
        (range(3), "pass list(value)"),
        (1j, "a complex number cannot be stored"),
        (Mapped(), "an ORM object cannot be stored; pass its key"),
        (Article(), "an ORM object cannot be stored; pass its key"),
        (object(), "a value of type builtins.object cannot be stored"),
        ({}.keys(), "a value of type builtins.dict_keys cannot be stored"),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), "outside the years 1 to 9999"),
        (time(1, tzinfo=ZoneInfo("Europe/Paris")), "offset depends on the day"),
        ("half \ud800", "half of a surrogate pair (at character 5)"),
    ],
)
def test_what_cannot_be_stored_is_refused_in_plain_words(value: Any, words: str) -> None:
    with pytest.raises(PayloadError) as caught:
        encode_call((value,), {})

    assert str(caught.value).startswith("args[0]: ")
    assert words in str(caught.value)


@pytest.mark.shows("R-ENQ-29", "R-EDGE-20")
def test_open_things_are_refused_in_plain_words() -> None:
    connection = sqlite3.connect(":memory:")
    with tempfile.NamedTemporaryFile() as file, socket.socket() as plug:
        found = [refused_words(value) for value in (file, plug, connection)]
    connection.close()

    assert found == ["an open file", "a socket", "a database connection"]


def refused_words(value: Any) -> str:
    with pytest.raises(PayloadError) as caught:
        encode_result(value)
    return str(caught.value).removeprefix("result: ").partition(" cannot")[0]


def test_a_coroutine_is_refused() -> None:
    coroutine = asyncio.sleep(0)
    words = refused_words(coroutine)
    coroutine.close()

    assert words == "a coroutine"


@pytest.mark.shows("R-ENQ-30", "R-ENQ-31")
@pytest.mark.parametrize(
    ("value", "path"),
    [
        ([1, [2, len]], "args[0][1][1]"),
        ({"a": {"b": len}}, 'args[0]["a"]["b"]'),
        ({"~": len}, 'args[0]["~"]'),
        ({1: len}, "args[0][1]"),
        ({len: 1}, "args[0][<built-in function len>]"),
        ((1, len), "args[0][1]"),
        ({len}, "args[0]{<built-in function len>}"),
        (Point(len), "args[0].x"),
        (Person([Point({"a": len})]), 'args[0].photo[0].x["a"]'),
        (Unordered.A, "args[0].value"),
        ({"half \ud800": 1}, 'args[0]["half \\ud800"]'),
        (["ok", "half \udfff"], "args[0][1]"),
        ([*["a"] * 20, "half \udfff"], "args[0][20]"),
        ({"k" * 99: len}, f'args[0]["{"k" * 40}"]'),
    ],
)
def test_the_path_leads_to_the_culprit(value: Any, path: str) -> None:
    assert refused_path(value) == path


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_values_are_nested_at_most_100_deep() -> None:
    assert round_trip(nested(100)) == nested(100)

    with pytest.raises(PayloadError, match="nested deeper than 100 levels"):
        encode_result(nested(101))


@pytest.mark.parametrize("wrap", [lambda inner: (inner,), lambda inner: {1: inner}, Point, Person])
def test_other_containers_may_be_as_deep(wrap: Any) -> None:
    value: Any = None
    for _ in range(100):
        value = wrap(value)

    assert round_trip(value) is not None
    with pytest.raises(PayloadError, match="nested deeper"):
        encode_result(wrap(value))


def test_a_value_that_contains_itself_is_refused_with_a_short_path() -> None:
    loop: dict[str, Any] = {}
    loop["self"] = [loop]

    path = refused_path(loop)

    assert path is not None
    assert path.startswith('args[0]["self"][0]["self"][0]')
    assert path.endswith("…")
    assert len(path) < 100


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({Point(1)}, "cannot be stored as members of a set; pass a list"),
        ({(1, Person(1))}, "cannot be stored as members of a set"),
        ({Point(1): 1}, "cannot be stored as keys of a dict; pass a list of pairs"),
        ({Kind.A, ("a", 1)}, "two members of a set are equal once they are stored"),
        ({Kind.A: 1, ("a", 1): 2}, "two keys of a dict are equal once they are stored"),
    ],
)
def test_what_would_be_lost_in_a_set_or_a_dict_is_refused(value: Any, words: str) -> None:
    with pytest.raises(PayloadError) as caught:
        encode_result(value)

    assert words in str(caught.value)


# ------------------------------------------------------------------ broken tags


@pytest.mark.shows("R-SER-20")
@pytest.mark.parametrize(
    "stored",
    [
        {"~": "datetime"},
        {"~": "datetime", "v": "2026-01-02T00:00:00Z", "more": 1},
        {"~": 5, "v": 1},
        {"~": None, "v": 1},
        {"~": ["set"], "v": []},
        {"~": "datetime", "v": 5},
        {"~": "datetime", "v": "yesterday"},
        {"~": "datetime", "v": "0001-01-01T00:00:00+02:00"},
        {"~": "date", "v": "2026-02-30"},
        {"~": "time", "v": "25:00"},
        {"~": "timedelta", "v": "1 day"},
        {"~": "timedelta", "v": "999999999999999"},
        {"~": "decimal", "v": "ten"},
        {"~": "uuid", "v": "123"},
        {"~": "bytes", "v": "A"},
        {"~": "bytes", "v": "a b="},
        {"~": "int", "v": "12"},
        {"~": "int", "v": "0x"},
        {"~": "float", "v": "1.5"},
        {"~": "tuple", "v": {}},
        {"~": "set", "v": [[]]},
        {"~": "set", "v": [{"a": 1}]},
        {"~": "map", "v": [1]},
        {"~": "map", "v": [[1, 2, 3]]},
        {"~": "map", "v": [[[], 1]]},
        [{"a": {"~": "tuple", "v": [{"~": "date", "v": ""}]}}],
    ],
)
def test_a_malformed_tag_is_corrupt(stored: Any) -> None:
    body = msgspec.json.encode({"v": 1, "result": stored})

    with pytest.raises(CorruptPayload, match="a stored value is malformed"):
        decode_result(framed(body))


def framed(body: bytes) -> bytes:
    return b"fb1 %08x\n%b" % (zlib.crc32(b"\n" + body), body)
