"""Evaluators that do what good ones do not; processes of a run import this module by its name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from armillary.explore.sweep.point import Point, Row


class Strange:
    """Does with each point what the place of its number in `does` says; notes each call in a file."""

    def __init__(self, does: dict[int, str], log: Path | None = None, seconds: float = 0.0) -> None:
        self.does = does
        self.log = log
        self.seconds = seconds

    def screen(self, point: Point) -> Row | None:
        if self.does.get(point.number) == "crash in screen":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.does.get(point.number) == "reject":
            return Row(point.number, point.values, point.key, "rejected", "not wanted")
        return None

    def evaluate(self, point: Point) -> Row:
        if self.log:
            with self.log.open("a") as log:
                log.write(f"{point.number}\n")
        time.sleep(self.seconds)
        measures = {"step_time": 1.0 + point.number}
        match self.does.get(point.number, ""):
            case "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "exit":
                os._exit(7)
            case "raise":
                raise KeyError("lost")
            case "hang":
                time.sleep(1000)
            case "spin":
                while True:
                    pass
            case "eat":
                eaten = []
                while True:
                    eaten.append(b"x" * (64 << 20))
            case "out of memory":
                raise MemoryError
            case "not a number":
                measures["mfu"] = float("nan")
        return Row(point.number, point.values, point.key, "ok", "", measures, 0.001)


class Leaky(Strange):
    """Keeps 100 MB of each point."""

    def __init__(self) -> None:
        super().__init__({})
        self.kept: list[bytes] = []

    def evaluate(self, point: Point) -> Row:
        self.kept.append(bytes(b"x" * (100 << 20)))
        time.sleep(0.06)
        return super().evaluate(point)


class Unreadable(Strange):
    """Cannot be made again in another process."""

    def __setstate__(self, _: object) -> None:
        raise ValueError("this was written by another version")
