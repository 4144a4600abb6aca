"""A page of another site in a real browser: it must not reach the broker's queues and sessions.

The browser fetches pictures, frames and what scripts ask for, as it does for any page. Names under
`.example` are this machine's (`FLAGS`), so the broker is both on this machine, where browsers say
which site asks, and elsewhere over plain HTTP, where they do not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rove.serve.settings import AccessSettings
from tests.page.conftest import PATIENCE_MS
from tests.page.waiting import until
from tests.serve.conftest import Running, start_server  # noqa: F401

FOREIGN = """<!doctype html><title>foreign</title><script>
window.ended = 0;
async function attack(broker) {
  const ended = () => { window.ended += 1; };
  for (const query of ["session=phone", "session=listener", "session=new&topic=a"]) {
    const url = broker + "/subscribe?" + query;
    const image = new Image();
    image.onload = image.onerror = ended;
    image.src = url;
    for (const method of ["GET", "HEAD"]) {
      fetch(url, {method, mode: "no-cors", credentials: "include"}).then(ended, ended);
    }
    const frame = document.createElement("iframe");
    frame.onload = ended;
    frame.src = url;
    document.body.append(frame);
  }
  fetch(broker + "/publish?topic=a",
        {method: "POST", mode: "no-cors", credentials: "include", body: "x"}).then(ended, ended);
}
</script><body></body>"""
ATTEMPTS = 3 * 4 + 1


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(FOREIGN.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def foreign_port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        yield site.server_port
        site.shutdown()
        thread.join()


@pytest.fixture(params=["localhost", "broker.example"])
def broker(
    request: pytest.FixtureRequest,
    start_server: Callable[..., Running],  # noqa: F811
) -> tuple[Running, str]:
    """On this machine, and elsewhere, for everybody who can reach it."""
    host = request.param
    is_here = host == "localhost"
    running = start_server(access=AccessSettings(anonymous="loopback" if is_here else "always"))
    return running, f"http://{host}:{running.ports['http']}"


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    context = chromium.new_context()
    context.set_default_timeout(PATIENCE_MS)
    yield context.new_page()
    context.close()


def test_it_takes_nothing_and_disturbs_nobody(
    page: Any, broker: tuple[Running, str], foreign_port: int
) -> None:
    running, url = broker
    refusal = "has to prove" if "example" in url else "may not do this"
    running.post("/sessions/phone/subscriptions", {"topic": "a"})
    running.post("/publish?topic=a", b"1")
    with running.stream("/subscribe?session=listener&topic=b") as listener:
        assert listener.status == 200
        page.goto(f"http://foreign.example:{foreign_port}/")
        page.evaluate("url => { attack(url); }", url)
        until(page, f"window.ended >= {ATTEMPTS}")
        with page.expect_navigation(wait_until="commit"):
            page.evaluate("url => { location.href = url; }", f"{url}/subscribe?session=phone")
        page.wait_for_selector("text=" + refusal)
        inside = running.server.shell.broker
        queued = running.look(
            lambda _: {name: len(s.queue) for name, s in inside.view.sessions.items()}
        )
        assert queued == {"phone": 1, "http": 0, "listener": 0}
        assert running.look(lambda _: inside.counters.sessions_taken_over) == 0
        assert running.look(lambda _: inside.counters.publications_received) == 1
        running.post("/publish?topic=b", b"2")
        assert listener.data()["value"] == 2


@pytest.mark.soak
def test_a_page_of_the_brokers_own_may(page: Any, broker: tuple[Running, str]) -> None:
    running, url = broker
    running.post("/sessions/phone/subscriptions", {"topic": "a"})
    running.post("/publish?topic=a", b"1")
    page.goto(f"{url}/subscriptions?limit=1")
    headers = {"x-rove": "1"} if "example" in url else {}
    found = page.evaluate(
        """async headers => {
          const answer = await fetch("/subscribe?session=phone", {headers});
          const reader = answer.body.getReader();
          let text = "";
          while (!text.includes("data:")) {
            text += new TextDecoder().decode((await reader.read()).value);
          }
          return text;
        }""",
        headers,
    )
    assert '"value":1' in found
