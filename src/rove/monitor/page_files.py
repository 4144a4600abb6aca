"""The files of the page, read and compressed once, and served with a strong ETag.

Together they are some hundred kilobytes, so they stay in memory. Files that are missing when the
monitor starts do not exist for it, and no path of a request ever reaches the file system.

Full-line comments of scripts, a seventh of all bytes, are not sent; empty lines in their place keep
the line numbers. Considered: a minifier, which would be a build step.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from rove.base.http import HttpError
from rove.base.http_answers import accepts_gzip

INDEX: Final = "index.html"
TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
"""Types of the files that are served; others (licences, notes) are not."""
VENDOR: Final = "vendor/"
"""Files of other projects, unchanged; their README lists the hashes."""
_BLOCK: Final = re.compile(rb"^[ \t]*/\*.*?\*/[ \t]*$", re.MULTILINE | re.DOTALL)
_LINE: Final = re.compile(rb"^[ \t]*//.*$", re.MULTILINE)


class File(msgspec.Struct, frozen=True):
    """A file, as it is and compressed."""

    body: bytes
    packed: bytes
    etag: str
    type: str


class Files:
    """All files of the page, by their path."""

    def __init__(self) -> None:
        self._files = dict(_files(resources.files("rove.monitor") / "page"))

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __getitem__(self, path: str) -> File:
        return self._files[path]

    def answer(self, path: str, request: Request) -> Response:
        """A file; 304 if the browser has it, an `HttpError` if there is none."""
        file = self._files.get(path)
        if file is None:
            raise HttpError(404, f"there is no {request.url.path}")
        # Checked each time, and not sent again as long as it is the same.
        headers = {"etag": file.etag, "cache-control": "no-cache", "vary": "accept-encoding"}
        if file.etag in request.headers.get("if-none-match", "").replace(" ", "").split(","):
            return Response(status_code=304, headers=headers)
        body = file.body
        if accepts_gzip(request) and len(file.packed) < len(file.body):
            body, headers["content-encoding"] = file.packed, "gzip"
        return Response(body, 200, headers, file.type)


def _files(folder: Traversable, before: str = "") -> Iterator[tuple[str, File]]:
    for one in folder.iterdir():
        path = f"{before}{one.name}"
        if one.is_dir():
            yield from _files(one, f"{path}/")
            continue
        suffix = f".{one.name.rpartition('.')[2]}"
        if suffix in TYPES:
            body = one.read_bytes()
            if suffix == ".js" and not path.startswith(VENDOR):
                body = without_comments(body)
            etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            yield path, File(body, gzip.compress(body, 9, mtime=0), etag, TYPES[suffix])


def without_comments(script: bytes) -> bytes:
    """The same without the comments that stand alone, line for line."""
    without = _BLOCK.sub(lambda found: b"\n" * found[0].count(b"\n"), script)
    return _LINE.sub(b"", without)
