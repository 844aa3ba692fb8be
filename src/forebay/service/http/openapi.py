"""OpenAPI document: routes from Litestar, schemas from msgspec."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from litestar import Litestar, MediaType
from litestar.openapi.plugins import OpenAPIRenderPlugin

from forebay.service.schema.base import Problem, ResponseModel

_REF: Final = "#/components/schemas/{name}"


class OpenApiPlugin(OpenAPIRenderPlugin):
    """Renderer of the JSON document only: Litestar's pages load scripts from other hosts."""

    def __init__(self) -> None:
        super().__init__(path="/v1.json", media_type=MediaType.JSON)
        self._json: bytes | None = None

    def render(self, request: Any, openapi_schema: dict[str, Any]) -> bytes:
        if self._json is None:  # it takes a second to render, and never changes
            self._json = msgspec.json.encode(document_of(request.app))
        return self._json


def document_of(app: Litestar) -> dict[str, Any]:
    """Return the document, as it is served and as the reference page is generated from it."""
    return complete_document(app.openapi_schema.to_schema())


def complete_document(document: dict[str, Any]) -> dict[str, Any]:
    """Return Litestar's document with the schemas and problems of the service."""
    # Litestar's schemas of msgspec structs omit that unknown fields are refused.
    _, components = msgspec.json.schema_components(_subclasses(ResponseModel), ref_template=_REF)
    known = document.setdefault("components", {}).setdefault("schemas", {})
    known.update(components)
    # Optional: health needs no key, and a server without keys ignores them.
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"key": []}, {}]
    problem = {"application/problem+json": {"schema": {"$ref": _REF.format(name=Problem.__name__)}}}
    for path in document["paths"].values():
        for operation in path.values():
            _add_problem_responses(operation, problem)
    return document


def _add_problem_responses(operation: dict[str, Any], content: dict[str, Any]) -> None:
    responses = operation["responses"]
    for response in responses.values():
        response["description"] = "Success."
    # Litestar's description of a 400 is not the problem that the service returns.
    responses.pop("400", None)
    responses["default"] = {"description": "Problem; `code` identifies it.", "content": content}


def _subclasses(kind: type[ResponseModel]) -> list[type[ResponseModel]]:
    # A server with gRPC has loaded request structs that HTTP does not use.
    if kind.__module__.startswith("forebay.service.grpc."):
        return []
    found = [kind] if kind.__struct_fields__ else []
    return [*found, *(nested for sub in kind.__subclasses__() for nested in _subclasses(sub))]
