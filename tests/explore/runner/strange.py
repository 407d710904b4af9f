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


class Held(Strange):
    """Notes who holds each point while it takes a while: the keeper, its worker, and the parent of that."""

    def evaluate(self, point: Point) -> Row:
        assert self.log
        above = [os.getppid()]
        for _ in range(2):
            above.append(int(Path(f"/proc/{above[-1]}/stat").read_text().rpartition(") ")[2].split()[1]))
        with self.log.open("a") as log:
            log.write(f"begun {point.number} {' '.join(map(str, above))}\n")
        time.sleep(self.seconds)
        with self.log.open("a") as log:
            log.write(f"ended {point.number}\n")
        return Row(point.number, point.values, point.key, "ok", "", {"step_time": 1.0 + point.number}, 0.001)


def held(log: Path, process: int) -> set[int]:
    """The points that a process, or a child of it, holds at this moment."""
    now: set[int] = set()
    for line in log.read_text().splitlines() if log.exists() else ():
        what, number, *above = line.split()
        if what == "begun" and str(process) in above:
            now.add(int(number))
        elif what == "ended":
            now.discard(int(number))
    return now


def times_begun(log: Path, number: int) -> int:
    return sum(line.split()[:2] == ["begun", str(number)] for line in log.read_text().splitlines())
