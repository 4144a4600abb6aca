"""The description of the interface: complete, understood by programs, readable without a net."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from rove.serve.http.openapi import document, page
from rove.serve.http.operations import OPERATIONS
from rove.serve.http.routes import Interface

if TYPE_CHECKING:
    from tests.serve.conftest import Running


def test_every_operation_has_a_handler() -> None:
    for name in OPERATIONS:
        assert callable(getattr(Interface, name))


def test_the_document_has_what_openapi_asks_for() -> None:
    found = document(OPERATIONS.values(), "1.2.3")
    assert found["openapi"] == "3.1.0"
    assert found["info"]["version"] == "1.2.3"
    for path, methods in found["paths"].items():
        names = re.findall(r"{(\w+)}", path)
        assert ":" not in path
        for method in methods.values():
            assert method["summary"]
            assert method["responses"]
            in_path = [one["name"] for one in method.get("parameters", ()) if one["in"] == "path"]
            assert in_path == names
    publish = found["paths"]["/publish"]["post"]
    assert publish["parameters"][0] == {
        "name": "topic",
        "in": "query",
        "required": True,
        "description": "the topic",
        "schema": {"type": "string"},
    }
    assert publish["responses"]["413"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/Error"
    }


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_need_nothing_from_elsewhere(server: Running, path: str) -> None:
    answer = server.get(path)
    assert answer.headers["content-type"].startswith("text/html")
    assert not re.search(r"<script|<link|@import|src=", answer.text)


def test_the_page_names_every_route(server: Running) -> None:
    text = server.get("/docs").text
    assert text == page(OPERATIONS.values(), "0.1.0")
    for operation in OPERATIONS.values():
        assert f"<b>{operation.method}</b> {operation.public_path}" in text


def test_the_document_is_served(server: Running) -> None:
    assert set(server.get("/openapi.json").json["paths"]) == {
        operation.public_path for operation in OPERATIONS.values()
    }


def test_the_front_page_escapes_what_it_is_told(server: Running) -> None:
    text = server.get("/", {"host": "localhost:1<script>"}).text
    assert "<script>" not in text
