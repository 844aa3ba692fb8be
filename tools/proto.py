"""Write the .proto file of the gRPC service, the code that is made from it, and docs/reference/grpc.md.

python tools/proto.py           write them
python tools/proto.py --check   fail if one of them is not as it would be written

Messages are made from the shapes of the service. The committed .proto file is the record of field numbers: a
field keeps the number that it has there, a new one gets the next, and the number and name of one that is gone
are reserved. The code is made by the grpcio-tools that is installed, which is the oldest that we support.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from importlib.resources import files
from inspect import cleandoc
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import wrap
from typing import Final, NamedTuple

import msgspec
from grpc_tools import protoc

from forebay.service.grpc.message_codec import WITHOUT, FieldKind, MessageField, mapping_of, message_name
from forebay.service.grpc.method_table import SERVICES, MethodSpec
from forebay.service.problem_details import codes

ROOT: Final = Path(__file__).resolve().parent.parent
SERVICE: Final = ROOT / "src" / "forebay" / "service"
NAME: Final = "forebay/v1/forebay.proto"
PROTO: Final = SERVICE / "proto" / NAME
GENERATED: Final = SERVICE / "generated"
PAGE: Final = ROOT / "docs" / "reference" / "grpc.md"

HEAD: Final = """\
// Jobs for programs in any language: enqueue, claim, settle, inspect and operate.
//
// Made by tools/proto.py; numbers of fields never change. What is missing has its default, and a field that
// ends in _json holds any JSON value as text. Who asks is said by metadata: authorization, Bearer and an API
// key. An error has the code of its problem in the trailing metadata forebay-code, and all of the Problem in
// forebay-problem-bin.
syntax = "proto3";

package forebay.v1;

import "google/protobuf/timestamp.proto";
"""
TYPES: Final = {
    FieldKind.TEXT: "string",
    FieldKind.JSON: "string",
    FieldKind.INTEGER: "int64",
    FieldKind.NUMBER: "double",
    FieldKind.BOOLEAN: "bool",
    FieldKind.TIMESTAMP: "google.protobuf.Timestamp",
}
WIDTH: Final = 105

_MESSAGE: Final = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.DOTALL | re.MULTILINE)
_NUMBER: Final = re.compile(r"^  (?:[\w.<>, ]+ )?(\w+) = (\d+);", re.MULTILINE)
_RESERVED: Final = re.compile(r"^  reserved (\d+); // (\w+)$", re.MULTILINE)


class Numbers(NamedTuple):
    """The numbers of one message: of fields that are there, and of those that are gone."""

    used: dict[str, int]
    gone: dict[str, int]


def known_numbers(text: str) -> dict[str, Numbers]:
    """The numbers that a .proto file has given out."""
    return {
        name: Numbers(
            {field: int(number) for field, number in _NUMBER.findall(body)},
            {field: int(number) for number, field in _RESERVED.findall(body)},
        )
        for name, body in _MESSAGE.findall(text)
    }


# The .proto file


def proto(known: dict[str, Numbers]) -> str:
    """The whole file, with the numbers that are known already."""
    services = [_service(name, methods) for name, methods in SERVICES.items()]
    messages = [_message(shape, known.get(message_name(shape), Numbers({}, {}))) for shape in shapes()]
    return "\n".join([HEAD, *services, *messages])


def shapes() -> list[type[msgspec.Struct]]:
    """Every shape that a method is asked with or answers, with what is in them: in the order of need."""
    found: dict[type[msgspec.Struct], None] = {}
    for methods in SERVICES.values():
        for method in methods:
            _gather(method.request_type, found)
            _gather(method.response_type, found)
    return list(found)


def _gather(shape: type[msgspec.Struct], found: dict[type[msgspec.Struct], None]) -> None:
    if shape not in found:
        found[shape] = None
        for field in mapping_of(shape).fields:
            if field.struct_type is not None:
                _gather(field.struct_type, found)


def _service(name: str, methods: Sequence[MethodSpec]) -> str:
    lines = [f"service {name} {{"]
    for method in methods:
        answer = f"{'stream ' if method.stream else ''}{message_name(method.response_type)}"
        lines += [
            *_comment(method.request_type, "  "),
            f"  rpc {method.name}({method.request_type.__name__}) returns ({answer});",
        ]
    return "\n".join([*lines, "}\n"])


def _message(shape: type[msgspec.Struct], known: Numbers) -> str:
    form = mapping_of(shape)
    lines = {field.wire: _line(field) for field in form.fields}
    if form.nullable:
        lines[WITHOUT] = (
            f"repeated string {WITHOUT}",
            _nulls(form.nullable),
        )
    top = max([0, *known.used.values(), *known.gone.values()])
    body = []
    for wire, (declared, words) in lines.items():
        top = top if wire in known.used else top + 1
        body.append(f"  {declared} = {known.used.get(wire, top)};{f' // {words}' if words else ''}")
    gone = {**known.gone, **{name: number for name, number in known.used.items() if name not in lines}}
    body += [
        f"  reserved {number}; // {name}" for name, number in sorted(gone.items(), key=lambda one: one[1])
    ]
    return "\n".join([*_comment(shape, ""), f"message {message_name(shape)} {{", *body, "}\n"])


def _line(field: MessageField) -> tuple[str, str]:
    """How a field is declared, and what there is to say about it."""
    kind = TYPES.get(field.kind) or message_name(field.struct_type or msgspec.Struct)
    declared = f"{kind} {field.wire}"
    if field.is_map:
        declared = f"map<string, {kind}> {field.wire}"
    elif field.is_list:
        declared = f"repeated {declared}"
    elif field.is_optional and field.kind not in (FieldKind.MESSAGE, FieldKind.TIMESTAMP):
        declared = f"optional {declared}"
    default = "" if field.default is None else f"default {_spelt(field.default)}"
    return declared, "; ".join(words for words in (", ".join(field.values), default) if words)


def _spelt(value: object) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def _comment(shape: type[msgspec.Struct], indent: str) -> list[str]:
    words = " ".join(cleandoc(shape.__doc__ or "").split())
    return [f"{indent}// {line}" for line in wrap(words, WIDTH - len(indent))]


def _nulls(names: set[str]) -> str:
    return f"names of fields that are to be null: {', '.join(sorted(names))}"


# The code


def code(text: str) -> dict[str, str]:
    """The files that are made from a .proto file, by name."""
    with TemporaryDirectory() as folder:
        source = Path(folder, "in", NAME)
        source.parent.mkdir(parents=True)
        source.write_text(text, encoding="utf-8")
        out = Path(folder, "out")
        out.mkdir()
        includes = [f"-I{folder}/in", f"-I{files('grpc_tools') / '_proto'}"]
        outs = [f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python")]
        if protoc.main(["protoc", *includes, *outs, NAME]) != 0:
            raise SystemExit("the .proto file cannot be compiled")
        made = {path.name: path.read_text(encoding="utf-8") for path in sorted(out.rglob("*.py*"))}
    # The package of the messages is forebay.v1, and this package has no room of that name.
    renamed = {
        name: made[name].replace("from forebay.v1 import", "from forebay.service.generated import")
        for name in made
    }
    # A message may be given as a mapping, and the compiler does not say of what.
    whole = re.sub(r"(?<! as )_Mapping(?!\[)", "_Mapping[str, _Any]", renamed["forebay_pb2.pyi"])
    whole = whole.replace("from typing import ClassVar as", "from typing import Any as _Any, ClassVar as", 1)
    return {**renamed, "forebay_pb2.pyi": whole, "forebay_pb2_grpc.pyi": types()}


# The types of the services, which the compiler leaves out. What a call answers depends on the channel: a
# message, something to await or a stream.

TYPES_HEAD: Final = """\
# Made by tools/proto.py.
from typing import Any, Protocol, TypeVar

from forebay.service.generated import forebay_pb2 as pb

GRPC_GENERATED_VERSION: str
GRPC_VERSION: str
_Asked = TypeVar("_Asked", contravariant=True)

class _Call(Protocol[_Asked]):
    def __call__(self, request: _Asked, OPTIONS) -> Any: ...
    def future(self, request: _Asked, OPTIONS) -> Any: ...
    def with_call(self, request: _Asked, OPTIONS) -> Any: ...
"""
OPTIONS: Final = (
    "timeout: float | None = ..., metadata: Any = ..., credentials: Any = ..., "
    "wait_for_ready: bool | None = ..., compression: Any = ..."
)


def types() -> str:
    """The .pyi file of the services."""
    made = [_typed_service(name, methods) for name, methods in SERVICES.items()]
    return "\n".join([TYPES_HEAD.replace("OPTIONS", OPTIONS), *made])


def _typed_service(name: str, methods: Sequence[MethodSpec]) -> str:
    stub, servicer, alone = [], [], []
    for method in methods:
        request = f"request: pb.{method.request_type.__name__}"
        stub.append(f"    {method.name}: _Call[pb.{method.request_type.__name__}]")
        servicer.append(f"    def {method.name}(self, {request}, context: Any) -> Any: ...")
        ways = f"options: Any = ..., channel_credentials: Any = ..., insecure: bool = ..., {OPTIONS}"
        alone += [
            "    @staticmethod",
            f"    def {method.name}({request}, target: str, {ways}) -> Any: ...",
        ]
    return "\n".join(
        [
            *(f"class {name}Stub:", "    def __init__(self, channel: Any) -> None: ...", *stub, ""),
            *(f"class {name}Servicer:", *servicer, ""),
            f"def add_{name}Servicer_to_server(servicer: {name}Servicer, server: Any) -> None: ...",
            *("", f"class {name}:", *alone, ""),
        ]
    )


# The page

PAGE_HEAD: Final = f"""# gRPC reference

Made by `make reference` with [{NAME}](../../src/forebay/service/proto/{NAME}), which clients are made from.
How to use it is told by [the guide](../guide/grpc.md). The operations are those of [HTTP](http.md),
which has all their limits.

A `?` behind a field says that one that is not set is another thing than an empty one.
"""


def page(known: dict[str, Numbers]) -> str:
    """The whole page."""
    return "\n".join([PAGE_HEAD, *_services(), *_messages(known), *_codes()]) + "\n"


def _services() -> Iterator[str]:
    for name, methods in SERVICES.items():
        yield f"## {name}\n\n| method | asked with | answers | |\n|---|---|---|---|"
        for method in methods:
            answer = f"{'stream of ' if method.stream else ''}{_link(message_name(method.response_type))}"
            yield f"| `{method.name}` | {_link(method.request_type.__name__)} | {answer} | "
            f"{_words(method.request_type)} |"
        yield ""


def _messages(known: dict[str, Numbers]) -> Iterator[str]:
    yield "## Messages\n"
    for shape in sorted(shapes(), key=message_name):
        form = mapping_of(shape)
        yield f"### {message_name(shape)}\n\n{_words(shape)}\n"
        numbers = known[message_name(shape)].used
        if form.fields:
            yield "| field | number | is | |\n|---|---|---|---|"
        for field in form.fields:
            declared, words = _line(field)
            kind = declared.rpartition(" ")[0].removeprefix("optional ")
            kind = (
                kind
                if field.struct_type is None
                else f"{'list of ' if field.is_list else ''}{_link(message_name(field.struct_type))}"
            )
            mark = "?" if declared.startswith("optional") else ""
            yield f"| `{field.wire}`{mark} | {numbers[field.wire]} | {kind} | {words} |"
        if form.nullable:
            yield f"| `{WITHOUT}` | {numbers[WITHOUT]} | repeated string | {_nulls(form.nullable)} |"
        yield ""


def _codes() -> Iterator[str]:
    yield "## Problems\n\n| status | `forebay-code` | |\n|---|---|---|"
    for kind in sorted(codes().values(), key=lambda one: (one.grpc, one.code)):
        yield f"| {kind.grpc} | `{kind.code}` | {kind.title} |"


def _words(shape: type[msgspec.Struct]) -> str:
    return " ".join(cleandoc(shape.__doc__ or "").split())


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def wanted() -> dict[Path, str]:
    """Every file that is made here, as it should be."""
    text = proto(known_numbers(PROTO.read_text(encoding="utf-8")) if PROTO.exists() else {})
    made = {GENERATED / name: content for name, content in code(text).items()}
    return {PROTO: text, PAGE: page(known_numbers(text)), **made}


def stale() -> list[Path]:
    """Which of them are not."""
    return [
        path
        for path, text in wanted().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]


def main() -> int:
    if "--check" in sys.argv[1:]:
        found = stale()
        for path in found:
            print(f"{path.relative_to(ROOT)} is not fresh: make reference", file=sys.stderr)
        return 1 if found else 0
    for path, text in wanted().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
