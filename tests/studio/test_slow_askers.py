"""Who connects and asks nothing, or asks a byte at a time, keeps nobody else from asking."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

pytest.importorskip("starlette")
uvicorn = pytest.importorskip("uvicorn")

from armillary.studio import guard, prompt, server  # noqa: E402


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Return the port of a studio that is less patient than usual."""
    monkeypatch.setattr(prompt, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.3)
    made: list[uvicorn.Server] = []

    class Kept(uvicorn.Server):
        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            made.append(self)

    monkeypatch.setattr(uvicorn, "Server", Kept)
    said: list[str] = []
    thread = threading.Thread(target=server.run, args=(0, said.append))
    thread.start()
    end = time.monotonic() + 30
    while not (made and made[0].started) and time.monotonic() < end:
        time.sleep(0.01)
    yield int(said[0].split(":")[2].split("/")[0])
    made[0].should_exit = True
    thread.join()


def status(port: int) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as asked:
        asked.request("GET", "/studio.css")
        return asked.getresponse().status


@pytest.mark.parametrize(
    "head", [b"", b"GET / HTTP/1.1\r\nHo", b"POST /api/train HTTP/1.1\r\nContent-Length: 9\r\n"]
)
def test_silent_connections_are_closed(port: int, head: bytes) -> None:
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(80)]
    for each in held:
        with suppress(OSError):
            each.sendall(head)
    end = time.monotonic() + 10
    while (found := status(port)) == 503 and time.monotonic() < end:
        time.sleep(0.1)
    assert found == 200
    for each in held:
        each.close()


def test_a_body_that_does_not_come_is_answered(port: int) -> None:
    with closing(socket.create_connection(("127.0.0.1", port), timeout=10)) as asked:
        asked.sendall(
            f"POST /api-less HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 9\r\n\r\nx".encode()
        )
        assert b" 408 " in asked.recv(100)


@pytest.mark.parametrize("length", [b"Content-Length: 536870912", b"Transfer-Encoding: chunked"])
def test_what_is_refused_is_not_read(port: int, length: bytes) -> None:
    """Nobody without the token can keep the server reading: the answer comes before the body, and then the end."""
    head = b"PUT /api/files?name=a HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n%s\r\n\r\n" % (port, length)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as asked:
        asked.sendall(head)
        answer = b""
        # Ends when the server closes the connection, although nothing of the body was sent.
        while piece := asked.recv(4096):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 401 ") and b"connection: close" in answer
