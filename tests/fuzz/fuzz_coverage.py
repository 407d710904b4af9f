"""Which lines of Armillary a case reached that none before it had: what guides the fuzzer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import armillary

_ROOT = str(Path(armillary.__file__).parent)
# A function that showed nothing new so often is looked at only now and then: tracing costs ten times the work.
_DULL = 30
_RARELY = 40
_TOOL = 4

Line = tuple[str, int]


class Coverage:
    """The lines that were reached so far."""

    def __init__(self) -> None:
        self.lines: set[Line] = set()
        self._calls: dict[CodeType, int] = {}
        self._new: set[Line] = set()
        self._monitoring = False

    @contextmanager
    def watching(self) -> Iterator[set[Line]]:
        """Yield a set that the body fills with lines which are new."""
        self._new = set()
        monitored = hasattr(sys, "monitoring")
        if not monitored:
            sys.settrace(self._call)
        elif not self._monitoring:
            self._monitor()
        try:
            yield self._new
        finally:
            if not monitored:
                sys.settrace(None)
            self.lines |= self._new

    def close(self) -> None:
        """Look no longer."""
        if self._monitoring:
            tools: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
            tools.set_events(_TOOL, 0)
            tools.free_tool_id(_TOOL)
            self._monitoring = False

    def _reached(self, code: CodeType, line: int) -> None:
        key = (code.co_filename, line)
        if key not in self.lines and key not in self._new:
            self._new.add(key)
            self._calls[code] = 0

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(_ROOT):
            return None
        calls = self._calls[code] = self._calls.get(code, 0) + 1
        if calls > _DULL and calls % _RARELY:
            return None
        self._reached(code, frame.f_lineno)
        return self._within

    def _within(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self._reached(frame.f_code, frame.f_lineno)
        return self._within

    def _monitor(self) -> None:
        # Since Python 3.12, and for nothing: a line is reported once, and then switched off. To begin and to end costs
        # as much as all code there is, so it goes on between cases.
        tools: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]

        def line(code: CodeType, number: int) -> Any:
            if code.co_filename.startswith(_ROOT):
                self._reached(code, number)
            return tools.DISABLE

        tools.use_tool_id(_TOOL, "armillary fuzz")
        tools.register_callback(_TOOL, tools.events.LINE, line)
        tools.restart_events()
        tools.set_events(_TOOL, tools.events.LINE)
        self._monitoring = True
