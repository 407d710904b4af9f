"""The processes of a distributed program on this machine, one for each rank."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from types import FrameType, TracebackType
from typing import Any

from armillary.base.posix import needs_posix

GRACE_SECONDS = 3.0
"""How long a process may take to end after SIGTERM before it is killed."""
_POLL_SECONDS = 0.01


class RankProcesses:
    """Runs ``python ARGUMENTS`` once for every rank, with the environment that torchrun gives.

    Leaving the ``with`` block ends the processes that still run, and all that they have started.
    """

    def __init__(
        self, arguments: Sequence[str], ranks: int, environment: Mapping[str, str] | None = None
    ) -> None:
        """Declare what to run; ``environment`` is added to that of this process."""
        self.arguments = [sys.executable, *arguments]
        self.ranks = ranks
        self.environment = dict(environment or {})
        self.processes: list[subprocess.Popen[bytes]] = []
        self._before: Any = None

    def __enter__(self) -> RankProcesses:
        needs_posix("running a program on all ranks")
        # SIGTERM would end this process without `__exit__` and leave the ranks behind; as an exception it
        # does not. Python allows handlers in the main thread only.
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, _terminated)
        port = free_port()
        for rank in range(self.ranks):
            environment = {**os.environ, **self.environment, **_environment(rank, self.ranks, port)}
            # A session of its own, so that whatever the rank starts can be ended with it.
            self.processes.append(subprocess.Popen(self.arguments, env=environment, start_new_session=True))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._signal(signal.SIGTERM)
            end = time.monotonic() + GRACE_SECONDS
            while self.running() and time.monotonic() < end:
                time.sleep(_POLL_SECONDS)
        finally:
            # Also for ranks that have ended: the session may hold processes that they started.
            self._signal(signal.SIGKILL)
            for process in self.processes:
                process.wait()
            if self._before is not None:
                signal.signal(signal.SIGTERM, self._before)

    def running(self) -> list[int]:
        """Return the ranks that have not ended."""
        return [rank for rank, process in enumerate(self.processes) if process.poll() is None]

    def failures(self) -> dict[int, str]:
        """Return the ranks that have failed, and how."""
        codes = {rank: process.poll() for rank, process in enumerate(self.processes)}
        return {rank: f"rank {rank} {_ended(code)}" for rank, code in codes.items() if code}

    def wait(self) -> None:
        """Give the processes a moment to go on."""
        time.sleep(_POLL_SECONDS)

    def _signal(self, number: signal.Signals) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                # The rank leads its session, so its id is that of the process group.
                os.killpg(process.pid, number)


def _environment(rank: int, ranks: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        # Else gloo looks the host name up, which need not lead to an interface of this machine.
        "GLOO_SOCKET_IFNAME": "lo",
        # As torchrun does: ranks that share a machine do not each take all of its cores.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nothing listens on now."""
    with socket.socket() as probe:
        # Port 0 lets the kernel choose; the port is free again when the probe closes, and another process may take it.
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _ended(code: int) -> str:
    if code > 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _terminated(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)
