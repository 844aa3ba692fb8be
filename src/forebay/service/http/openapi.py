"""The OpenAPI document: the framework knows the routes, msgspec knows the shapes."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from litestar import Litestar, MediaType
from litestar.openapi.plugins import OpenAPIRenderPlugin

from forebay.service.schema.base import Problem, ResponseModel

_REF: Final = "#/components/schemas/{name}"


class OpenApiPlugin(OpenAPIRenderPlugin):
    """Serves the document, and nothing else: the framework's pages load scripts from other hosts."""

    def __init__(self) -> None:
        super().__init__(path="/v1.json", media_type=MediaType.JSON)
        self._json: bytes | None = None

    def render(self, request: Any, openapi_schema: dict[str, Any]) -> bytes:
        if self._json is None:  # it takes a second to make, and never changes
            self._json = msgspec.json.encode(document_of(request.app))
        return self._json


def document_of(app: Litestar) -> dict[str, Any]:
    """The whole document, as it is served and as the reference page is made from it."""
    return complete_document(app.openapi_schema.to_schema())


def complete_document(document: dict[str, Any]) -> dict[str, Any]:
    """The framework's document with our shapes and problems."""
    # What the framework says of msgspec's classes leaves out that unknown names are refused.
    _, components = msgspec.json.schema_components(_subclasses(ResponseModel), ref_template=_REF)
    known = document.setdefault("components", {}).setdefault("schemas", {})
    known.update(components)
    # Health is for everybody; a server that asks for no keys takes no notice of them.
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"key": []}, {}]
    problem = {"application/problem+json": {"schema": {"$ref": _REF.format(name=Problem.__name__)}}}
    for path in document["paths"].values():
        for operation in path.values():
            _add_problem_responses(operation, problem)
    return document


def _add_problem_responses(operation: dict[str, Any], content: dict[str, Any]) -> None:
    answers = operation["responses"]
    for answer in answers.values():
        answer["description"] = "Done."
    # The framework's own words for a request of the wrong shape are not what we answer.
    answers.pop("400", None)
    answers["default"] = {
        "description": "What went wrong; `code` says which problem it is.",
        "content": content,
    }


def _subclasses(kind: type[ResponseModel]) -> list[type[ResponseModel]]:
    # A server that speaks gRPC too has loaded requests that nobody can make here.
    if kind.__module__.startswith("forebay.service.grpc."):
        return []
    found = [kind] if kind.__struct_fields__ else []
    return [*found, *(one for sub in kind.__subclasses__() for one in _subclasses(sub))]
