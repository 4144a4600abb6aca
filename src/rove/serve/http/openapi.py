"""Descriptions of the HTTP interface: the OpenAPI document, and a page for people.

The routes, the accepted parameters, the OpenAPI document at `/openapi.json` and the page at `/docs`
all come from one table of `Operation`s (`rove.serve.http.operations`). The page is a few lines of
HTML: the usual viewers load a megabyte of scripts from the Internet, which a broker often cannot
reach.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

Kind = Literal["string", "integer", "boolean"]


class Parameter(msgspec.Struct, frozen=True):
    """A parameter in a query or a path."""

    name: str
    about: str
    kind: Kind = "string"
    required: bool = False
    in_path: bool = False


class Operation(msgspec.Struct, frozen=True):
    """A route: a method and a path."""

    method: str
    path: str
    about: str
    parameters: tuple[Parameter, ...] = ()
    body: str = ""
    """A description of the body, if there is one."""
    body_type: str = "application/json"
    answers: tuple[tuple[int, str], ...] = ((200, "JSON"),)
    answer_type: str = "application/json"
    access: Literal["open", "known", "admin"] = "known"
    """Who may use it: anybody, users who may connect, or administrators."""
    takes: bool = False
    """Whether it is a GET with effects: it takes notifications from a queue, or makes a session."""

    @property
    def is_safe(self) -> bool:
        """Whether it has no effects."""
        return self.method == "GET" and not self.takes

    @property
    def public_path(self) -> str:
        """The path without converters of the router: `{number}` for `{number:int}`."""
        return re.sub(r"[{](\w+):\w+[}]", r"{\1}", self.path)

    @property
    def query_names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.parameters if not each.in_path)


ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"error": {"type": "string"}, "hint": {"type": "string"}},
    "required": ["error"],
}


def document(operations: Iterable[Operation], version: str) -> dict[str, Any]:
    """The OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(each.public_path, {})[each.method.lower()] = _described(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Rove",
            "version": version,
            "description": "Publish, subscribe and look inside a Rove broker.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR_SCHEMA},
            "securitySchemes": {"password": {"type": "http", "scheme": "basic"}},
        },
        "security": [{"password": []}, {}],
    }


def _described(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {"summary": operation.about}
    if operation.parameters:
        found["parameters"] = [_parameter(each) for each in operation.parameters]
    if operation.body:
        content = {operation.body_type: {"schema": {"description": operation.body}}}
        found["requestBody"] = {"required": True, "content": content}
    found["responses"] = {
        str(status): _response(status, about, operation.answer_type)
        for status, about in operation.answers
    }
    if operation.access == "open":
        found["security"] = [{}]
    return found


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": "path" if parameter.in_path else "query",
        "required": parameter.required or parameter.in_path,
        "description": parameter.about,
        "schema": {"type": parameter.kind},
    }


def _response(status: int, about: str, answer_type: str) -> dict[str, Any]:
    if status >= 400:
        schema: dict[str, Any] = {"$ref": "#/components/schemas/Error"}
        return {"description": about, "content": {"application/json": {"schema": schema}}}
    return {"description": about, "content": {answer_type: {}}}


# --- for people ---------------------------------------------------------------------------------

STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
code, pre, dt { font-family: ui-monospace, monospace; font-size: .9rem; }
section { border-top: 1px solid #8886; padding: .5rem 0 1rem; }
h2 { font: 600 1rem ui-monospace, monospace; margin: .75rem 0 .25rem; }
h2 b { display: inline-block; min-width: 4.5rem; color: #0072B2; }
@media (prefers-color-scheme: dark) { h2 b { color: #56B4E9; } }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .5rem 0; }
dd { margin: 0; }
small { opacity: .75; }
"""
ACCESS = {
    "open": "For everybody.",
    "known": "For users who may connect, within the access rules.",
    "admin": "For administrators.",
}


def page(operations: Iterable[Operation], version: str) -> str:
    """The same as one HTML page."""
    sections = "".join(map(_section, operations))
    return _html(
        f"Rove {version}: HTTP interface",
        "<p>For programs: <a href=openapi.json>openapi.json</a>. Errors are JSON,"
        ' <code>{"error": …, "hint": …}</code>.</p>' + sections,
    )


def _section(operation: Operation) -> str:
    rows = [
        (f"{each.name}{' *' if each.required else ''}", each.about) for each in operation.parameters
    ]
    if operation.body:
        rows.append(("body", operation.body))
    rows += [(str(status), about) for status, about in operation.answers]
    listed = "".join(f"<dt>{html.escape(a)}</dt><dd>{html.escape(b)}</dd>" for a, b in rows)
    return (
        f"<section><h2><b>{operation.method}</b> {html.escape(operation.public_path)}</h2>"
        f"{html.escape(operation.about)} <small>{ACCESS[operation.access]}</small>"
        f"<dl>{listed}</dl></section>"
    )


def front_page(version: str, name: str) -> str:
    """The page for browsers at `/`."""
    return _html(
        f"Rove {version}",
        "<p>A publish/subscribe broker. What is here:</p><ul>"
        "<li><a href=docs>docs</a>: the HTTP interface, every route of it</li>"
        "<li><a href=healthz>healthz</a>: is it healthy?</li>"
        "<li><a href=metrics>metrics</a>: counters and gauges for Prometheus</li>"
        f"<li><code>ws://{html.escape(name)}/mqtt</code>: MQTT over WebSocket</li></ul>"
        "<p>To subscribe and to publish:</p>"
        f"<pre>curl -N 'http://{html.escape(name)}/subscribe?topic=air/%23'\n"
        f"curl 'http://{html.escape(name)}/publish?topic=air/1' -d '{{\"NO2\": 41}}'</pre>",
    )


def _html(title: str, body: str) -> str:
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style>"
        f"<h1>{html.escape(title)}</h1>{body}</html>\n"
    )
