"""Calls and results as bytes: the header, the limits, broken and newer payloads, classes by signature."""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, NewType, Optional, TypeVar

import msgspec
import pytest

from forebay.domain.job import NewJob
from forebay.domain.job_validation import MAX_PAYLOAD
from forebay.errors import ConfigError, CorruptPayload, InvalidJob, NewerPayload, PayloadError
from forebay.payload.codec import (
    MIN_LIMIT,
    check_limit,
    decode_call,
    decode_result,
    encode_call,
    encode_result,
)
from forebay.payload.coercion import Coercion, coerce_call

if TYPE_CHECKING:
    from nowhere import Ghost  # type: ignore[import-not-found]  # an annotation that cannot be resolved

SAMPLE = encode_call(("héllo", 7, datetime(2026, 1, 2, tzinfo=UTC)), {"to": [1.5, None, True]})


def framed(body: bytes, fields: bytes = b"") -> bytes:
    """A payload as a program in another language would write it, by the reference page alone."""
    rest = fields + b"\n" + body
    return b"fb1 %08x" % zlib.crc32(rest) + rest


def refusal(*args: Any, **kwargs: Any) -> PayloadError:
    with pytest.raises(PayloadError) as caught:
        encode_call(args, kwargs)
    return caught.value


# ------------------------------------------------------------------ the stored form


@pytest.mark.shows("R-SER-01", "R-SER-05", "R-SER-19", "R-SER-26")
def test_a_call_is_compact_json_under_a_line_with_its_checksum() -> None:
    assert encode_call((7, "ann"), {"urgent": True}) == (
        b'fb1 1314e19d\n{"v":1,"args":[7,"ann"],"kwargs":{"urgent":true}}'
    )


def test_a_result_is_stored_in_the_same_way() -> None:
    assert encode_result({"sent": 3}) == b'fb1 ec6d28b7\n{"v":1,"result":{"sent":3}}'


def test_the_checksum_is_over_all_that_follows_its_digits() -> None:
    assert int(SAMPLE[4:12], 16) == zlib.crc32(SAMPLE[12:])


@pytest.mark.shows("R-SER-25")
def test_any_json_tool_reads_what_follows_the_first_line() -> None:
    first, _, body = encode_call((1,), {"name": "ann"}).partition(b"\n")

    assert first.isascii()
    assert json.loads(body) == {"v": 1, "args": [1], "kwargs": {"name": "ann"}}


@pytest.mark.shows("R-SER-12")
@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((None,), {}),
        ((1, "a", 1.5, True, None), {}),
        (([], {}, [[]], [{"a": {"b": [None, {}]}}]), {"x": {"y": [1, 2]}}),
        ((), {"~": 1, "é": datetime(2026, 1, 1, tzinfo=UTC)}),
        (([1] * 20, [1.5] * 20, ["a"] * 20, ["é"] * 20, [2**70] * 20, [float("inf")] * 20), {}),
    ],
)
def test_a_call_comes_back_as_it_was(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert decode_call(encode_call(args, kwargs)) == (args, kwargs)


@pytest.mark.parametrize("value", [None, 0, "", [], {}, (1, 2), {"~": "tuple", "v": [1]}, Decimal("1.10")])
def test_a_result_comes_back_as_it_was(value: Any) -> None:
    assert decode_result(encode_result(value)) == value


@pytest.mark.shows("R-SER-22")
def test_a_payload_of_another_program_is_read() -> None:
    body = (
        b' {"kwargs": {"at": {"v": "2026-01-02T03:04:05+02:00", "\\u007e": "datetime"}}, "args": [], "v": 1} '
    )

    _, kwargs = decode_call(framed(body))

    assert kwargs == {"at": datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)}


# ------------------------------------------------------------------ broken and newer


@pytest.mark.shows("R-SER-19", "R-SER-20", "R-EDGE-71")
@pytest.mark.parametrize("place", range(len(SAMPLE)))
def test_every_change_of_one_byte_is_noticed(place: int) -> None:
    for other in set(range(256)) - {SAMPLE[place]}:
        with pytest.raises((CorruptPayload, NewerPayload)):
            decode_call(SAMPLE[:place] + bytes([other]) + SAMPLE[place + 1 :])


def test_only_the_number_of_the_format_can_make_a_broken_payload_look_newer() -> None:
    for place in set(range(len(SAMPLE))) - {2}:
        with pytest.raises(CorruptPayload):
            decode_call(SAMPLE[:place] + bytes([SAMPLE[place] ^ 1]) + SAMPLE[place + 1 :])


@pytest.mark.shows("R-SER-20")
@pytest.mark.parametrize("length", range(len(SAMPLE)))
def test_a_truncated_payload_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptPayload):
        decode_call(SAMPLE[:length])


@pytest.mark.parametrize("data", [SAMPLE + b" ", SAMPLE + b"\n", b" " + SAMPLE, SAMPLE * 2])
def test_a_payload_with_something_more_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptPayload):
        decode_call(data)


@pytest.mark.shows("R-SER-20", "R-ENQ-27")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[]",
        b"null",
        b'"\xff"',
        b'{"v":1}',
        b'{"v":1,"args":[]}',
        b'{"v":1,"args":{},"kwargs":{}}',
        b'{"v":1,"args":[],"kwargs":[]}',
        b'{"v":1,"args":[],"kwargs":{},"extra":1}',
        b'{"v":"1","args":[],"kwargs":{}}',
        b'{"v":0,"args":[],"kwargs":{}}',
        b'{"v":-1}',
        b'{"v":1,"args":[],"kwargs":{}} {}',
        b'{"v":1,"args":["\xff"],"kwargs":{}}',
        b'{"v":1,"args":["\\ud800"],"kwargs":{}}',
        b'{"v":1,"args":[1e999],"kwargs":{}}',
        b'{"v":1,"args":[NaN],"kwargs":{}}',
        b'{"v":1,"args":[%b],"kwargs":{}}' % (b"9" * 5_000),
        b'{"v":1,"args":%b%b,"kwargs":{}}' % (b"[" * 5_000, b"]" * 5_000),
        b'{"v":1,"args":[{"~":"tuple","v":%b%b}],"kwargs":{}}' % (b"[" * 301, b"]" * 301),
        b'{"v":1,"args":[%b%b],"kwargs":{}}' % (b"[" * 302, b"]" * 302),
    ],
)
def test_malformed_json_under_a_good_checksum_is_corrupt(body: bytes) -> None:
    with pytest.raises(CorruptPayload):
        decode_call(framed(body))


@pytest.mark.parametrize(
    "argument",
    [
        b"[" * 301 + b"]" * 301,
        b'{"~":"tuple","v":%b%b}' % (b"[" * 300, b"]" * 300),
        b'{"~":"map","v":[[1,' * 100 + b'{"~":"date","v":"2026-01-31"}' + b"]]}" * 100,
        b'{"~":"frozenset","v":[' * 150 + b'{"~":"date","v":"2026-01-31"}' + b"]}" * 150,
    ],
    ids=["lists", "a tuple of lists", "pairs", "sets"],
)
def test_what_is_as_deep_as_a_payload_may_be_is_read_on_every_python(argument: bytes) -> None:
    assert decode_call(framed(b'{"v":1,"args":[%b],"kwargs":{}}' % argument))


@pytest.mark.shows("R-SER-05")
@pytest.mark.parametrize(
    "data",
    [
        framed(b'{"v":2,"args":[],"kwargs":{}}'),
        framed(b'{"v":3,"call":"something else"}'),
        framed(b'{"v":1,"args":[{"~":"quaternion","v":[1,2,3,4]}],"kwargs":{}}'),
        framed(b"\x00\xffsecret", fields=b" key=k1"),
        framed(b"", fields=b" blob=s3://bucket/1 key=k1"),
        b"fb2 whatever comes then",
        b"fb17\n",
    ],
)
def test_what_is_whole_but_made_for_a_later_version_is_not_called_corrupt(data: bytes) -> None:
    with pytest.raises(NewerPayload):
        decode_call(data)


@pytest.mark.parametrize("fields", [b" ", b" key", b" key=", b" KEY=1", b"  key=1", b" key=\xc3\xa9"])
def test_a_malformed_field_of_the_header_is_corrupt(fields: bytes) -> None:
    with pytest.raises(CorruptPayload):
        decode_call(framed(b'{"v":1,"args":[],"kwargs":{}}', fields))


def test_a_broken_field_of_the_header_is_noticed() -> None:
    data = framed(b"secret", fields=b" key=k1")

    with pytest.raises(CorruptPayload):
        decode_call(data.replace(b"k1", b"k2"))


@pytest.mark.shows("R-SER-20")
@pytest.mark.parametrize("data", [b"", framed(b"{}"), encode_call((), {})])
def test_a_result_that_is_none_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptPayload):
        decode_result(data)


def test_a_broken_payload_is_an_invalid_job_whose_payload_is_to_blame() -> None:
    with pytest.raises(InvalidJob) as caught:
        decode_call(b"junk")

    assert caught.value.field == "payload"


# ------------------------------------------------------------------ limits


@pytest.mark.shows("R-ENQ-25")
def test_a_call_has_at_most_100_positional_and_50_keyword_arguments() -> None:
    most = {f"k{n}": n for n in range(50)}

    assert decode_call(encode_call(range(100), most)) == (tuple(range(100)), most)
    assert refusal(*range(101)).field == "args"
    assert refusal(**most, one_more=1).field == "kwargs"


@pytest.mark.shows("R-ENQ-22", "R-ENQ-23", "R-SER-17", "R-EDGE-19")
@pytest.mark.parametrize("limit", [MIN_LIMIT, 5_000, MAX_PAYLOAD])
def test_a_payload_may_be_as_large_as_the_limit_and_not_a_byte_larger(limit: int) -> None:
    room = limit - len(encode_call(("",), {}))

    assert len(encode_call(("x" * room,), {}, limit=limit)) == limit
    with pytest.raises(PayloadError, match=f"{limit + 1:,} bytes"):
        encode_call(("x" * (room + 1),), {}, limit=limit)


def test_a_payload_at_the_limit_makes_a_job() -> None:
    room = MAX_PAYLOAD - len(encode_call(("",), {}))

    job = NewJob(task="send", payload=encode_call(("x" * room,), {}))

    assert len(job.payload) == MAX_PAYLOAD


@pytest.mark.shows("R-SER-16", "R-ENQ-31")
def test_a_payload_that_is_too_large_names_its_largest_part() -> None:
    error = refusal("small", photo=b"x" * MAX_PAYLOAD, name="ann")

    assert error.field == 'kwargs["photo"]'
    assert "pass a reference" in str(error)


def test_a_result_has_the_same_limit() -> None:
    room = MIN_LIMIT - len(encode_result(""))

    assert len(encode_result("x" * room, limit=MIN_LIMIT)) == MIN_LIMIT
    with pytest.raises(PayloadError, match="the result has 1,025 bytes") as caught:
        encode_result("x" * (room + 1), limit=MIN_LIMIT)
    assert caught.value.field == "result"


@pytest.mark.shows("R-SER-17", "R-CFG-50")
def test_the_limit_itself_has_limits() -> None:
    check_limit(1_024)
    check_limit(MAX_PAYLOAD)

    for wrong in (1_023, MAX_PAYLOAD + 1, 2_000.0, True, None):
        with pytest.raises(ConfigError, match="payload limit"):
            check_limit(wrong)  # type: ignore[arg-type]  # what a settings file might hold


@pytest.mark.shows("R-EDGE-16", "R-SER-24")
def test_a_result_that_cannot_be_stored_says_where_and_why() -> None:
    with pytest.raises(PayloadError, match=r'^result\["rows"\]\[1\]: a lambda cannot be stored') as caught:
        encode_result({"rows": [1, lambda: 2]})

    assert caught.value.field == 'result["rows"][1]'


@pytest.mark.shows("R-ENQ-29", "R-ENQ-30", "R-ENQ-31", "R-SER-24")
def test_an_argument_that_cannot_be_stored_is_named_with_its_path() -> None:
    error = refusal(1, user={"photo": [1, 2, object()]})

    assert error.field == 'kwargs["user"]["photo"][2]'
    assert str(error).startswith('kwargs["user"]["photo"][2]: a value of type builtins.object cannot')


@pytest.mark.parametrize("name", [5, None, "half \ud800"])
def test_a_keyword_that_is_no_text_is_refused(name: Any) -> None:
    with pytest.raises(PayloadError, match=r"^kwargs\["):
        encode_call((), {name: 1})


# ------------------------------------------------------------------ classes, by the task's signature


class Color(Enum):
    RED = "red"
    PAIR = (1, 2)


class Level(IntEnum):
    LOW = 1


class Mode(StrEnum):
    FAST = "fast"


class Rights(Flag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Point:
    x: int
    y: float = 0.0


@dataclass
class Shape:
    color: Color
    points: list[Point]
    by_name: dict[str, Point] = field(default_factory=dict)
    when: datetime | None = None
    area: int = field(init=False, default=0)
    inner: Shape | None = None


class Person(msgspec.Struct, rename="camel"):
    full_name: str
    home: Point | None = None
    nick: str | msgspec.UnsetType = msgspec.UNSET


class Cat(msgspec.Struct, tag=True):
    name: str


class Dog(msgspec.Struct, tag=True):
    name: str


class Odd(msgspec.Struct, rename={"mark": "~"}):
    mark: int


class Position(NamedTuple):
    where: Point
    note: str = ""


T = TypeVar("T")


@dataclass
class Box(Generic[T]):
    content: T


UserColor = NewType("UserColor", Color)

SHAPE = Shape(Color.RED, [Point(1), Point(2, 2.5)], {"a": Point(3)}, datetime(2026, 1, 1, tzinfo=UTC), None)


def paint(
    color: Color,
    level: Level = Level.LOW,
    /,
    mode: Mode = Mode.FAST,
    rights: Rights = Rights.READ,
    *rest: Point,
    person: Person | None = None,
    **more: Color,
) -> Shape:
    raise NotImplementedError


def through(func: Any, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a task with the signature of this function is called with."""
    return coerce_call(Coercion(func), *decode_call(encode_call(args, kwargs)))


def taking(hint: Any) -> Any:
    def func(value: Any) -> None:
        raise NotImplementedError

    func.__annotations__["value"] = hint
    return func


@pytest.mark.shows("R-SER-11")
def test_every_parameter_gets_the_class_that_its_annotation_names() -> None:
    args = (Color.RED, Level.LOW, Mode.FAST, Rights.READ | Rights.WRITE, Point(1, 2.0))
    kwargs = {"person": Person("Ann", Point(1)), "other": Color.PAIR}

    got_args, got_kwargs = through(paint, *args, **kwargs)

    assert (got_args, got_kwargs) == (args, kwargs)
    assert [type(arg) for arg in got_args] == [Color, Level, Mode, Rights, Point]


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Color, Color.PAIR),
        (Optional[Color], None),  # noqa: UP045 - the old spelling is still written
        (Color | None, Color.RED),
        (Shape, SHAPE),
        (Shape, dataclasses.replace(SHAPE, inner=dataclasses.replace(SHAPE, inner=SHAPE))),
        (list[Point], [Point(1), Point(2)]),
        (list[Point], (Point(1), Point(2))),
        (tuple[Color, ...], (Color.RED, Color.PAIR)),
        (tuple[Color, int, Point], (Color.RED, 5, Point(1))),
        (set[Color], {Color.RED, Color.PAIR}),
        (frozenset[Level], frozenset({Level.LOW})),
        (dict[str, Point], {"a": Point(1)}),
        (dict[Color, list[Point]], {Color.PAIR: [Point(1)], Color.RED: []}),
        (Mapping[int, Point], {1: Point(1)}),
        (Annotated[Point, "here"], Point(1)),
        (UserColor, Color.RED),
        (Person, Person("Ann", nick="a")),
        (Person | Point, Person("Ann")),
        (Point | Person, Person("Ann")),
        (Cat | Dog, Dog("Rex")),
        (Point | str, "text"),
        (Point | str, Point(1)),
        (Odd, Odd(5)),
        (Position, Position(Point(1), "x")),
        (Box[int], Box(5)),
    ],
)
def test_values_come_back_as_the_annotated_class(hint: Any, value: Any) -> None:
    (got,), _ = through(taking(hint), value)

    assert got == value
    assert type(got) is type(value)


def test_a_field_that_the_constructor_does_not_take_comes_back() -> None:
    shape = Shape(Color.RED, [])
    shape.area = 12

    (got,), _ = through(taking(Shape), shape)

    assert got.area == 12


def test_without_an_annotation_the_plain_value_arrives() -> None:
    def func(color, point, person):  # type: ignore[no-untyped-def]  # that is the point
        raise NotImplementedError

    args, _ = through(func, Color.RED, Point(1, 2.0), Person("Ann"))

    assert args == ("red", {"x": 1, "y": 2.0}, {"fullName": "Ann", "home": None})


@pytest.mark.parametrize("hint", [int, str, list[int], dict[str, Any], Any, "Ghost", "int |", None, list, T])
def test_other_annotations_change_nothing(hint: Any) -> None:
    values = [1, "a", (1, 2), {"x": 1, "y": 2.0}, None, Decimal(1)]

    assert [through(taking(hint), value)[0][0] for value in values] == values


def test_one_annotation_that_cannot_be_resolved_does_not_spoil_the_others() -> None:
    def func(ghost: Ghost, color: Color) -> None:
        raise NotImplementedError

    args, _ = through(func, {"x": 1}, Color.RED)

    assert args == ({"x": 1}, Color.RED)


def test_a_default_of_none_takes_none() -> None:
    def func(color: Color = None) -> None:  # type: ignore[assignment]  # as older code does
        raise NotImplementedError

    assert through(func, None) == ((None,), {})
    assert through(func, color=Color.RED) == ((), {"color": Color.RED})


def test_a_wrapped_function_is_read_through_its_wrapper() -> None:
    @wraps(paint)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    assert through(wrapper, Color.RED) == ((Color.RED,), {})


def test_a_result_gets_the_class_that_the_function_says_it_returns() -> None:
    stored = decode_result(encode_result(SHAPE))

    assert Coercion(paint).coerce_result(stored) == SHAPE


def test_a_value_that_has_its_class_already_stays_itself() -> None:
    point, position = Point(1), Position(Point(1))

    assert coerce_call(Coercion(taking(Point)), (point,), {})[0][0] is point
    assert coerce_call(Coercion(taking(Position)), (position,), {})[0][0] is position


@pytest.mark.shows("R-SER-24")
@pytest.mark.parametrize(
    ("hint", "value", "path", "words"),
    [
        (Color, "blue", "args[0]", "'blue' is not a value of Color"),
        (Color, [], "args[0]", "is not a value of Color"),
        (Color | None, "blue", "args[0]", "'blue' is not a value of Color"),
        (Point, 5, "args[0]", "a dict is needed to make a Point, not a int"),
        (Point, {"y": 1.0}, "args[0]", "missing 1 required"),
        (Point, {"x": 1, "z": 2}, "args[0]", "Point has no field 'z'"),
        (list[Point], [{"x": 1}, {}], "args[0][1]", "a Point cannot be made"),
        (list[Point], "text", "args[0]", "several values are needed"),
        (dict[str, Color], {"a": "blue"}, 'args[0]["a"]', "'blue'"),
        (dict[str, Color], [], "args[0]", "a dict is needed"),
        (tuple[Color, int], ("red",), "args[0]", "2 values are needed"),
        (Shape, {"color": "red", "points": [{"x": 1}, {"q": 1}]}, "args[0].points[1]", "no field 'q'"),
        (Cat | Dog, {"type": "Fish", "name": "x"}, "args[0]", "'type' is not 'Dog'"),
        (Position, ({"x": 1}, "a", "b"), "args[0]", "2 values are needed"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_path(
    hint: Any, value: Any, path: str, words: str
) -> None:
    with pytest.raises(PayloadError) as caught:
        through(taking(hint), value)

    assert caught.value.field == path
    assert words in str(caught.value)


def test_a_keyword_or_a_result_that_does_not_fit_is_named_too() -> None:
    with pytest.raises(PayloadError, match=r'^kwargs\["value"\]: '):
        through(taking(Color), value="blue")
    with pytest.raises(PayloadError, match=r"^result: "):
        Coercion(paint).coerce_result(5)


def test_an_exact_length_of_time_survives_inside_a_dataclass() -> None:
    (got,), _ = through(taking(Box), Box({timedelta(days=1): (Decimal("1.0"), b"x")}))

    assert got == Box({timedelta(days=1): (Decimal("1.0"), b"x")})
