"""Publishing over HTTP: one connection to the broker per user, kept open, shared by all requests.

So `POST /publish` costs a PUBLISH and no CONNECT. The client id is `http`, or `http:` and the
user's name, and nobody else can have it: whoever could would throw this client out.
"""

from __future__ import annotations

import asyncio

from rove.broker.access import Identity
from rove.broker.sessions.lifecycle import HTTP_CLIENT_ID
from rove.mqtt.packets import Publish
from rove.serve.http.in_process import InProcessClient
from rove.serve.shell import Shell


class Publishers:
    """The connections, by user."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._clients: dict[str | None, InProcessClient] = {}
        self._opening = asyncio.Lock()

    async def publish(self, identity: Identity, packet: Publish) -> int | None:
        """Publish as that user; the reason code, or `Refused`."""
        client = await self._client(identity)
        return await client.publish(packet)

    async def _client(self, identity: Identity) -> InProcessClient:
        client = self._clients.get(identity.user)
        if client is not None and client.end is None:
            return client
        async with self._opening:
            client = self._clients.get(identity.user)
            if client is None or client.end is not None:
                client = InProcessClient(self._shell, "http", identity)
                await client.connect(client_id_of(identity), is_http_publisher=True)
                self._clients[identity.user] = client
        return client


def client_id_of(identity: Identity) -> str:
    """As whom a user publishes over HTTP."""
    return HTTP_CLIENT_ID if identity.user is None else f"{HTTP_CLIENT_ID}:{identity.user}"
