"""Write docs/reference/http.md and the types of the dashboard from the service's own description of itself.

python tools/reference.py           write them
python tools/reference.py --check   fail if one is not as it would be written
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from forebay.service import problem_details
from forebay.service.http.app import framework_app
from forebay.service.http.openapi import document_of
from forebay.service.service import Service
from forebay.stores.factory import open_engine

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "http.md"
TYPES: Final = Path(__file__).resolve().parent.parent / "dashboard" / "src" / "types.ts"
TYPES_HEAD: Final = "// Made by `make reference` from the service's own description; do not edit.\n"
_PLAIN: Final = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}
HEAD: Final = """# HTTP reference

Made by `make reference` from the document that a server gives at `GET /openapi/v1.json`, which has all of it
for programs. How to use it is told by [the guide](../guide/service.md).

A `?` behind a field of a request says that it may be left out. Instants are ISO 8601 with a time zone.
Answers may gain fields in later versions.
"""


def document() -> dict[str, Any]:
    """Return the OpenAPI document of a server."""
    return document_of(framework_app(Service(open_engine("memory://")), version="1"))


def page(described: dict[str, Any]) -> str:
    """The whole page."""
    return "\n".join([HEAD, *_operations(described), *_shapes(described), *_codes()]) + "\n"


def _operations(described: dict[str, Any]) -> Iterator[str]:
    by_tag: dict[str, list[str]] = {}
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).extend(_operation(path, method, operation))
    for tag, lines in by_tag.items():
        yield f"## {tag.capitalize()}\n"
        yield from lines


def _operation(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"### {method.upper()} {path}\n"
    yield f"{operation['description']}\n"
    for parameter in operation.get("parameters", ()):
        if parameter["in"] != "path":
            name = f"`{parameter['name']}`"
            yield f"- {parameter['in']} {name}: {_kind(parameter['schema'])}. {parameter['description']}"
    body = operation.get("requestBody")
    if body is not None:
        yield f"- body: {_kind(body['content']['application/json']['schema'])}"
    for status, answer in operation["responses"].items():
        if status != "default":
            content = answer.get("content", {}).get("application/json", {})
            yield f"- {status}: {_kind(content.get('schema', {}))}"
    yield ""


def _shapes(described: dict[str, Any]) -> Iterator[str]:
    yield "## Shapes\n"
    for name, shape in sorted(described["components"]["schemas"].items()):
        yield f"### {name}\n"
        if "enum" in shape:
            yield f"{_kind(shape)}\n"
        else:
            yield f"{' '.join(shape.get('description', '').split())}\n"
            yield "| field | is | default |\n|---|---|---|"
            required = shape.get("required", ())
            for field, kind in shape["properties"].items():
                mark = "" if field in required else "?"
                yield f"| `{field}`{mark} | {_kind(kind)} | {_default(kind)} |"
            yield ""


def _codes() -> Iterator[str]:
    yield "## Problems\n"
    yield "| code | status | gRPC | |\n|---|---|---|---|"
    for kind in sorted(problem_details.codes().values(), key=lambda one: (one.status, one.code)):
        yield f"| `{kind.code}` | {kind.status} | {kind.grpc} | {kind.title} |"


def _default(kind: dict[str, Any]) -> str:
    return f"`{kind['default']}`" if kind.get("default") not in (None, [], {}) else ""


def _kind(kind: dict[str, Any]) -> str:
    """Return the type of a value in a few words."""
    if "$ref" in kind:
        name = kind["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})" if name[0].isupper() else f"`{name}`"
    for word in ("anyOf", "oneOf"):
        if word in kind:
            return " or ".join(_kind(one) for one in kind[word])
    if "enum" in kind:
        return ", ".join(f"`{one}`" for one in kind["enum"])
    if kind.get("type") == "array":
        return f"list of {_kind(kind.get('items', {})) or 'anything'}{_limits(kind, 'Items')}"
    named = kind.get("format", kind.get("type", "anything"))
    return f"{named}{_limits(kind, 'Length')}{_bounds(kind)}"


def _limits(kind: dict[str, Any], what: str) -> str:
    most = kind.get(f"max{what}")
    return "" if most is None else f", up to {most:,}"


def _bounds(kind: dict[str, Any]) -> str:
    least, most = kind.get("minimum"), kind.get("maximum")
    if least is None and most is None:
        return ""
    return f", {'' if least is None else _number(least)} to {'' if most is None else _number(most)}"


def _number(bound: float) -> str:
    # Two bounds that are equal are one for Python, whichever was written with a point.
    return f"{int(bound):,}" if bound == int(bound) else f"{bound:,}"


def types(described: dict[str, Any]) -> str:
    """All shapes as TypeScript, for the dashboard."""
    return "\n".join([TYPES_HEAD, *_interfaces(described["components"]["schemas"])])


def _interfaces(schemas: dict[str, Any]) -> Iterator[str]:
    for name, shape in sorted(schemas.items()):
        if not name[0].isupper():
            continue
        if "properties" in shape:
            required = shape.get("required", ())
            yield f"export interface {name} {{"
            for field, kind in shape["properties"].items():
                yield f"  {field}{'' if field in required else '?'}: {_typed(kind)};"
            yield "}\n"
        else:
            yield f"export type {name} = {_typed(shape)};\n"


def _typed(kind: dict[str, Any]) -> str:
    if "$ref" in kind:
        return str(kind["$ref"].rpartition("/")[2])
    for word in ("anyOf", "oneOf"):
        if word in kind:
            return " | ".join(dict.fromkeys(_typed(one) for one in kind[word]))
    if "enum" in kind:
        return " | ".join(json.dumps(one) for one in kind["enum"])
    if "const" in kind:
        return json.dumps(kind["const"])
    named = kind.get("type")
    if named == "array":
        item = _typed(kind["items"]) if kind.get("items") else "unknown"
        return f"({item})[]" if " | " in item else f"{item}[]"
    if named == "object":
        more = kind.get("additionalProperties")
        return f"Record<string, {_typed(more) if isinstance(more, dict) and more else 'unknown'}>"
    return _PLAIN.get(str(named), "unknown")


def main() -> int:
    described = document()
    wanted = {PAGE: page(described), TYPES: types(described)}
    if "--check" not in sys.argv[1:]:
        for path, text in wanted.items():
            path.write_text(text, encoding="utf-8")
        return 0
    stale = [path.name for path, text in wanted.items() if path.read_text(encoding="utf-8") != text]
    for name in stale:
        print(f"{name} is not fresh: python tools/reference.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
