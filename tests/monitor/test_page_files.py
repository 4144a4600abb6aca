"""The files of the page: small, checked by their ETag, and nothing beside them."""

import gzip
import hashlib
from importlib import resources

import pytest

from rove.monitor.page_files import Files, without_comments
from tests.monitor.conftest import Running


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


def test_whole_line_comments_are_removed_and_line_numbers_kept() -> None:
    script = b'/**\n * Why.\n */\nconst a = "// b"; // c\n  // d\n  /* e */\nf(`/* g */`);\n'
    assert without_comments(script) == b'\n\n\nconst a = "// b"; // c\n\n\nf(`/* g */`);\n'


def test_what_others_have_made_is_given_out_as_it_is() -> None:
    page = resources.files("rove.monitor") / "page"
    files, hashes = Files(), (page / "vendor/README.md").read_text()
    for name in ("vendor/preact.js", "vendor/uplot.js"):
        assert files[name].body == (page / name).read_bytes()
        assert hashlib.sha256(files[name].body).hexdigest() in hashes
