"""Connections on which nothing is asked are closed: they need no token, and would keep the places of who has one."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
"""That a connection may stay without a whole head of a request."""


class Prompt(H11Protocol):
    """HTTP for those who say at once what they want."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._later(None)

    def _later(self, answered: Any) -> None:
        self.loop.call_later(HEAD_SECONDS, self._look, answered)

    def _look(self, answered: Any) -> None:
        """Close the connection if its last request is the one that was answered already when it was last looked at."""
        if self.transport.is_closing():
            return
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self.cycle is answered:
            self.transport.close()
        else:
            self._later(self.cycle if idle else self)
