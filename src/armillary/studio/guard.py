"""Who may ask: only a page of this server, or a program that knows the token; and how much at a time.

A page of another site can make a browser send requests to this computer. So what is not addressed to this server by its
own name is refused (a name of somebody else that leads here, too: DNS rebinding), as is what comes from another origin,
and every answer needs the token in a header, which no other page can set. The token stands in the fragment of the
address that is opened, which a browser sends to nobody.
"""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from hmac import compare_digest
from typing import Any

MOST_BODY = 1 << 18
"""Bytes of a request: a configuration has some 2,000."""
BODY_SECONDS = 30.0
"""Between two pieces of a request: what comes slower would keep a place from others for ever."""
API = "/api/"
SENT = "/api/files"
"""Where files are sent to, which go to the disk as they come; `armillary.studio.uploads` has their limits."""
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-embedder-policy": "require-corp",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Guard:
    """An ASGI application around another."""

    def __init__(self, app: App, token: str, hosts: tuple[str, ...]) -> None:
        """Take the application, the token, and the names and ports by which this server is called."""
        self.app, self.token, self.hosts = app, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may be asked."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *own]}
            await send(message)

        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        refused = self._refused(scope)
        if refused:
            await _answer(guarded, *refused, last=_is_large(scope))
            return

        async def soon() -> Message:
            try:
                return await asyncio.wait_for(receive(), BODY_SECONDS)
            except TimeoutError:
                return {"type": "http.disconnect"}

        if scope["path"] == SENT:
            await self._pass(scope, soon, guarded)
            return
        body = b""
        while True:
            message = await soon()
            body += message.get("body", b"")
            if len(body) > MOST_BODY:
                await _answer(
                    guarded, 413, f"a request of more than {MOST_BODY:,} bytes, which is the limit", last=True
                )
                return
            if message["type"] == "http.disconnect":
                await _answer(guarded, 408, f"nothing of the request came for {BODY_SECONDS:g} s", last=True)
                return
            if not message.get("more_body"):
                break
        given = False

        async def once() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._pass(scope, once, guarded)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.app(scope, receive, send)
        except asyncio.CancelledError:
            # The server is told to end: whoever asks finds out by the closed connection.
            return
        except Exception:  # a bug costs one answer, which has been sent as an error
            traceback.print_exc()

    def _refused(self, scope: Scope) -> tuple[int, str] | None:
        """Return status and reason of a refusal."""
        headers: dict[str, str] = {}
        for raw, value in scope["headers"]:
            name = raw.decode("latin-1").lower()
            if name in headers and name in ("host", "origin", "authorization", "content-type"):
                return 400, f"header {name} is given twice"
            headers[name] = value.decode("latin-1")
        if headers.get("host", "") not in self.hosts:
            return 421, "this server answers by its own address only"
        api = scope["path"].startswith(API)
        own = {f"http://{host}" for host in self.hosts}
        if headers.get("origin", next(iter(own))) not in own:
            return 403, "a request from another site"
        # A link to the page is no harm; anything else that another site asks for is.
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and (
            api or headers.get("sec-fetch-mode") != "navigate"
        ):
            return 403, "a request from another site"
        if not api:
            return None
        said = headers.get("authorization", "")
        if not compare_digest(said.encode("latin-1"), f"Bearer {self.token}".encode()):
            return (
                401,
                "expected the header 'Authorization: Bearer TOKEN', of the address that the studio printed",
            )
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        wanted = {"POST": "application/json", "PUT": "application/octet-stream"}.get(scope["method"], kind)
        if kind != wanted:
            return 415, f"expected content of type {wanted}"
        return None


def _is_large(scope: Scope) -> bool:
    """Return whether a request announces a body of more than `MOST_BODY`, or one of unknown length."""
    lengths = [value for name, value in scope["headers"] if name.lower() == b"content-length"]
    if any(name.lower() == b"transfer-encoding" for name, _ in scope["headers"]):
        return True
    return any(not value.isdigit() or int(value[:19]) > MOST_BODY for value in lengths)


async def _answer(send: Send, status: int, message: str, *, last: bool = False) -> None:
    """Answer with an error; after the `last` the connection ends, so that nobody reads what is still to come."""
    body = json.dumps({"error": message, "exit_code": None}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(b"connection", b"close")] * last
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
