"""The server of the studio: on this computer only, at an address that nobody can guess."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable

from armillary.base.errors import InputError

HOST = "127.0.0.1"
PORT = 8765


def run(port: int | None, say: Callable[[str], None]) -> None:
    """Serve the studio until the process is told to end.

    Args:
        port: 0: any that is free; None: `PORT`, or if that is taken any that is free.
        say: Called with the address when the server listens.

    Raises:
        InputError: the port is taken, or the packages of the extra are not there.
    """
    try:
        import uvicorn

        from armillary.studio.app import studio
        from armillary.studio.prompt import Prompt
    except ImportError as error:
        raise InputError(
            f"the studio needs Starlette and uvicorn ({error}), expected `pip install armillary[studio]`"
        ) from error
    listening = _listen(port)
    number = listening.getsockname()[1]
    token = secrets.token_urlsafe(24)
    app = studio(token, (f"{HOST}:{number}", f"localhost:{number}"))
    # No access log: addresses are nobody's business, and one line a slider step is noise; nor is it news that a request
    # ends with the server.
    config = uvicorn.Config(
        app, log_level="critical", access_log=False, server_header=False, timeout_graceful_shutdown=1,
        limit_concurrency=64, h11_max_incomplete_event_size=1 << 16, http=Prompt,
    )  # fmt: skip
    # Of the fragment (after #) nothing is ever sent, nor is it in the list of processes.
    say(f"http://{HOST}:{number}/#token={token}")
    with listening:
        uvicorn.Server(config).run(sockets=[listening])


def _listen(port: int | None) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        try:
            made.bind((HOST, PORT if port is None else port))
        except OSError:
            if port is not None:
                raise
            made.bind((HOST, 0))
    except OSError as error:
        made.close()
        raise InputError(
            f"port {port}: {(error.strerror or str(error)).lower()}, expected another, or 0 for any that is free"
        ) from None
    made.listen(64)
    return made
