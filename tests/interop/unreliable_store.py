"""An object store that is slow, breaks off and loses answers: a proxy before a real one.

    python -m tests.interop.unreliable_store HOST:PORT SEED SHARE

prints its port. Of the requests a share is refused (503), cut off before or after they were passed
on, or answered late. What was passed on has happened, whether or not the answer arrives.
"""

from __future__ import annotations

import http.client
import random
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LATE_S = 0.3
FAULTS = ("refuse", "cut before", "cut after", "late")


class Handler(BaseHTTPRequestHandler):
    """Passes on, or not."""

    protocol_version = "HTTP/1.1"
    target = ""
    share = 0.0
    chance = random.Random()
    lock = threading.Lock()

    def pass_on(self) -> None:
        with self.lock:
            is_faulty = self.chance.random() < self.share
            fault = self.chance.choice(FAULTS) if is_faulty else ""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if fault == "cut before":
            self.close_connection = True
            return
        if fault == "refuse":
            self.answer(503, {}, b"")
            return
        if fault == "late":
            time.sleep(LATE_S)
        upstream = http.client.HTTPConnection(self.target)
        upstream.request(self.command, self.path, body, dict(self.headers))
        found = upstream.getresponse()
        content = found.read()
        upstream.close()
        if fault == "cut after":
            self.close_connection = True
            return
        self.answer(found.status, dict(found.getheaders()), content)

    def answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            is_ours = name.lower() in ("connection", "date", "server", "transfer-encoding")
            if not is_ours and not (name.lower() == "content-length" and self.command != "HEAD"):
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = pass_on  # noqa: N815

    def log_message(self, format: str, *arguments: object) -> None:
        """Nobody reads it."""


def main(target: str, seed: str, share: str) -> None:
    Handler.target, Handler.share = target, float(share)
    Handler.chance = random.Random(int(seed))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
