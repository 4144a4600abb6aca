"""The files of the page: small, checked by their ETag, and nothing beside them."""

import gzip

import pytest
from tests.monitor.conftest import Running

from rove.monitor.static import Files


def test_the_front_page_and_its_files(monitor: Running) -> None:
    front = monitor.get("/")
    assert front.status == 200
    assert front.headers["content-type"].startswith("text/html")
    script = monitor.get("/page/main.js", {"accept-encoding": "gzip"})
    assert script.headers["content-type"].startswith("text/javascript")
    assert script.headers["content-encoding"] == "gzip"
    plain = monitor.get("/page/main.js")
    assert "content-encoding" not in plain.headers
    assert gzip.decompress(script.body) == plain.body


def test_what_the_browser_has_is_not_sent_again(monitor: Running) -> None:
    etag = monitor.get("/page/main.js").headers["etag"]
    again = monitor.get("/page/main.js", {"if-none-match": etag})
    assert (again.status, again.body) == (304, b"")
    assert monitor.get("/page/main.js", {"if-none-match": '"other"'}).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/page/nothing.js",
        "/page/../application.py",
        "/page/..%2fapplication.py",
        "/page//etc/passwd",
        "/page/vendor/LICENSE.preact",
        "/page/",
        "/page/%00",
    ],
)
def test_nothing_else_is_given_out(monitor: Running, path: str) -> None:
    assert monitor.get(path).status == 404


def test_everything_a_page_may_load_is_there() -> None:
    files = Files()
    assert "index.html" in files
    assert files["index.html"].body
    assert all(len(files[path].etag) > 10 for path in files)
