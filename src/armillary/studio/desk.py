"""Where questions wait for the process that simulates: one at a time, with limits, and what was answered is kept."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from armillary.base.json_text import parse_json
from armillary.base.units import format_bytes, format_time
from armillary.studio.worker import serve

LOOK = 0.1
"""Seconds between looks at the clock and the memory while an answer is made."""
MOST_MEMORY = 10_000_000_000
"""Bytes that the process may take; the simulator refuses what it expects to take more than 8 GB."""
MOST_WAITING = 8
"""Questions that may wait."""
MOST_AHEAD = 32
"""Questions that are answered ahead: the nearest values of a slider, and a place or two of each other one."""
MOST_KEPT = 64_000_000
"""Bytes of answers that are kept."""
Tell = Callable[[dict[str, Any]], None]


class RefusedError(Exception):
    """A question has no answer: why, and the exit code that the command would have."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class BusyError(Exception):
    """Too many questions wait."""


class Desk:
    """A process that answers, and who waits for it."""

    def __init__(self, seconds: float) -> None:
        """Begin; the process starts with the first question.

        Args:
            seconds: That an answer may take.
        """
        self.seconds = seconds
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def busy(self) -> bool:
        """Whether something is answered, or waits."""
        return self._waiting > 0

    async def ask(self, kind: str, question: Mapping[str, Any], tell: Tell = lambda told: None) -> bytes:
        """Return the answer, as JSON; who is cancelled while it is made ends the process.

        Raises:
            RefusedError: there is none, or it took too long or too much.
            BusyError: too many wait.
        """
        if self._waiting >= MOST_WAITING:
            raise BusyError
        self._waiting += 1
        try:
            async with self._lock:
                try:
                    return await self._answer(kind, question, tell)
                except BaseException as error:
                    # What it still does belongs to nobody, and would answer the next question.
                    if not isinstance(error, RefusedError):
                        self.close()
                    raise
        finally:
            self._waiting -= 1

    async def _answer(self, kind: str, question: Mapping[str, Any], tell: Tell) -> bytes:
        pipe = self._started()
        try:
            pipe.send_bytes(json.dumps([kind, question]).encode())
            begun = time.monotonic()
            while True:
                # In a thread, which wakes when something comes: the server goes on meanwhile.
                if await asyncio.to_thread(pipe.poll, LOOK):
                    text = await asyncio.to_thread(pipe.recv_bytes)
                    if text.startswith(b'{"answer":'):
                        return text[len(b'{"answer":') : -1]
                    message = parse_json(text, "answer")
                    if "refused" in message:
                        raise RefusedError(message["refused"], message["exit_code"])
                    tell(message["told"])
                if time.monotonic() - begun > self.seconds:
                    self._end(
                        f"this takes longer than {format_time(self.seconds * 1e9)}, which is the limit here"
                    )
                if self._size() > MOST_MEMORY:
                    self._end(
                        f"this takes more than {format_bytes(MOST_MEMORY)} of memory, which is the limit here"
                    )
        except (EOFError, OSError):
            self.close()
            raise RefusedError("the process that simulates has ended: it is started again", 4) from None

    def _end(self, why: str) -> None:
        self.close()
        raise RefusedError(f"{why}; the command line has none", 4)

    def _started(self) -> Connection:
        if self._process is None or self._pipe is None or not self._process.is_alive():
            self.close()
            # Not forked: the server has threads.
            starting = multiprocessing.get_context("spawn")
            self._pipe, theirs = starting.Pipe()
            # The process is killed when it is not wanted any more, and could not clear up what it leaves.
            self._folder = tempfile.TemporaryDirectory(prefix="armillary-studio-")
            self._process = starting.Process(target=serve, args=(theirs, self._folder.name), daemon=True)
            self._process.start()
            theirs.close()
        return self._pipe

    def _size(self) -> int:
        from armillary.explore.runner.forked import memory_of

        return memory_of(self._process.pid or 0) if self._process else 0

    def close(self) -> None:
        """End the process."""
        if self._pipe is not None:
            with suppress(OSError):
                self._pipe.close()
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._folder is not None:
            self._folder.cleanup()
        self._process = self._pipe = self._folder = None


class Answers:
    """Answers by their questions: who asks what is being answered waits for the same, what was answered is kept."""

    def __init__(self, desk: Desk, idle: Desk) -> None:
        """Begin.

        Args:
            desk: Answers what is asked.
            idle: Answers ahead, while it has nothing else to do.
        """
        self.desk, self.idle = desk, idle
        self._next: list[tuple[str, Mapping[str, Any]]] = []
        self._reading: asyncio.Task[None] | None = None
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        self._made: dict[str, tuple[asyncio.Task[bytes], list[int]]] = {}

    async def of(self, kind: str, question: Mapping[str, Any]) -> bytes:
        """Return an answer as JSON; when all who ask have gone away, it is ended.

        Raises:
            RefusedError, BusyError: see `Desk.ask`.
        """
        key = json.dumps([kind, question], sort_keys=True)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if key not in self._made:
            if kind == "headline":
                # What was to be answered ahead lies beside a step that is shown no more.
                self._next = []
            self._made[key] = asyncio.ensure_future(self.desk.ask(kind, question)), [0]
        task, asking = self._made[key]
        asking[0] += 1
        try:
            text = await asyncio.shield(task)
        finally:
            asking[0] -= 1
            if not asking[0]:
                self._made.pop(key, None)
                if not task.done():
                    task.cancel()
        self._keep(key, text)
        return text

    def ahead(self, kind: str, questions: Sequence[Mapping[str, Any]]) -> None:
        """Answer what may be asked next, the likeliest first; what was to be answered ahead before no longer is."""
        self._next = [(kind, each) for each in questions[:MOST_AHEAD]]
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(self._read_ahead())

    async def _read_ahead(self) -> None:
        # One begins only when the last has ended: who uses the process for something else waits for no more than that.
        while self._next and not self.idle.busy:
            kind, question = self._next.pop(0)
            key = json.dumps([kind, question], sort_keys=True)
            if key not in self._kept and key not in self._made:
                # Whoever asks hears why.
                with suppress(RefusedError, BusyError):
                    self._keep(key, await self.idle.ask(kind, question))

    def close(self) -> None:
        """Answer nothing ahead any more."""
        self._next = []
        if self._reading:
            self._reading.cancel()

    def _keep(self, key: str, text: bytes) -> None:
        if key not in self._kept:
            self._kept[key] = text
            self._size += len(text) + len(key)
        while self._size > MOST_KEPT and len(self._kept) > 1:
            old, gone = self._kept.popitem(last=False)
            self._size -= len(gone) + len(old)
