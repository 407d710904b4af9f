"""Another program as a compute model: kernels go in, and times come out, as lines of JSON.

The program is started once for all kernels of a simulation. It reads to the end of its input::

    {"device": {"peak_flops": 9.89e14, "memory_bytes_per_s": 3.35e12, "peaks": {"bf16": 9.89e14}}}
    {"id": 0, "name": "mlp.up.gemm", "kind": "gemm", "operations": 137438953472, "bytes": 100663296,
     "precision": "bf16", "gemm": [{"calls": 1, "batch": 1, "m": 4096, "n": 4096, "k": 4096}], "recorded_ns": 0}

(each object on one line), and writes one line per kernel, in any order: ``{"id": 0, "ns": 190000.0}``; null is for a
kernel that it does not know. ``"bound"`` (text) and ``"beyond"`` (number, see `Times`) may be there, too.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import IO, Any

import numpy as np

from armillary.base.errors import ConsentError, InputError
from armillary.base.programs import find_program
from armillary.base.units import format_time
from armillary.compute._supervised import Supervised
from armillary.compute.model import ComputeModel, Device, Times, Work

_QUOTED = 200
_PATIENCE = 10.0
"""Seconds for which threads may go on once the program is dead; they end at once."""
_BLOCK, _ROOM, _LINE = 1 << 16, 1 << 20, 1 << 12
"""Bytes that are read at a time; of an answer at most, and for each kernel besides."""


@dataclass(frozen=True)
class Program(ComputeModel):
    """Asks a program.

    Attributes:
        device: The NPU.
        command: The program and its arguments.
        timeout: Seconds after which it is stopped, with all that it has started.
        folder: Where it runs: that of the study.
        path: Its file, for which there is consent.
    """

    device: Device
    command: tuple[str, ...]
    timeout: float
    folder: Path
    path: Path

    @classmethod
    def create(cls, options: Mapping[str, Any], device: Device, folder: Path) -> Program:
        """See `ComputeModel`; the options are those of `armillary.platform.files.compute_schema.Program`.

        Raises:
            ConsentError: nobody but the file allows the program, see `armillary.base.programs`.
            InputError: it is not there.
        """
        command = tuple(options["command"])
        try:
            path = find_program(command, folder)
        except (ConsentError, InputError) as error:
            raise type(error)(f"compute: command: {error}") from error
        return cls(device, command, options.get("timeout_ns", 60e9) / 1e9, folder, path)

    def durations(self, work: Work) -> Times:
        """See `ComputeModel`."""
        if not len(work):
            return Times(np.zeros(0))
        return self._read(self._run(question(work, self.device), len(work)), len(work))

    def _run(self, text: str, count: int) -> str:
        """Exchange texts with the program; what it writes is bounded, as it may never end."""
        try:
            process = Supervised(self.path, self.command, self.folder)
        except (OSError, ValueError) as error:
            raise self._error(f"cannot be started: {error}") from error
        most, out, err = _ROOM + _LINE * count, bytearray(), bytearray()
        # Three threads: a program that writes before it has read all would block on a full pipe otherwise.
        threads = [
            Thread(target=_feed, args=(process, text.encode()), daemon=True),
            Thread(target=_drain, args=(process, process.stdout, out, most), daemon=True),
            Thread(target=_drain, args=(process, process.stderr, err, most), daemon=True),
        ]
        code = None
        try:
            until = monotonic() + self.timeout
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(max(until - monotonic(), 0))
            if max(len(out), len(err)) > most:
                # The reader stops at the limit and kills the program, so this is checked before the exit
                # code.
                raise self._error(
                    f"wrote more than {most} bytes, expected a line for each of {count} kernels"
                )
            said = process.wait(max(until - monotonic(), 0))
            # A child that inherited the pipes may keep them open after the program has ended.
            if said is None or any(thread.is_alive() for thread in threads):
                raise self._error(f"gave no answer within {format_time(self.timeout * 1e9)}")
            if not isinstance(said, int):
                raise self._error(said)
            code = said
        finally:
            process.stop()
            # With every process that held the other ends gone, none of these can wait for long.
            for thread in threads:
                if thread.ident is not None:
                    thread.join(_PATIENCE)
            process.close()
        if code:
            lines = err.decode(errors="replace").strip().splitlines()
            last = f": {lines[-1][:_QUOTED]}" if lines else ""
            raise self._error(f"ended with exit code {code}{last}")
        try:
            return out.decode()
        except UnicodeDecodeError:
            raise self._error("wrote what is not UTF-8, expected lines of JSON") from None

    def _read(self, text: str, count: int) -> Times:
        # Answers may come in any order: kernels are known by id.
        ns, beyond, bound, seen = np.full(count, np.nan), np.ones(count), [""] * count, [False] * count
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            at, answer = self._answer(number, line, count)
            if seen[at]:
                raise self._error(f"line {number} answers id {at} again")
            seen[at] = True
            if answer["ns"] is not None:
                ns[at] = answer["ns"]
            beyond[at], bound[at] = answer.get("beyond", 1), answer.get("bound", "")
        if not all(seen):
            raise self._error(
                f"answered {sum(seen)} of {count} kernels, the first that lacks is id {seen.index(False)}"
            )
        return Times(ns, tuple(bound), beyond)

    def _answer(self, number: int, line: str, count: int) -> tuple[int, dict[str, Any]]:
        where = f"line {number} of its answer, {line[:_QUOTED]!r}"
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            raise self._error(f"{where}, is not JSON; expected {{'id': 0, 'ns': 12.5}}") from None
        if not isinstance(answer, dict) or not {"id", "ns"} <= answer.keys() <= {
            "id",
            "ns",
            "bound",
            "beyond",
        }:
            raise self._error(f"{where}: expected an object with id and ns, and perhaps bound and beyond")
        at = answer["id"]
        if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at < count:
            raise self._error(f"{where}: id is {at!r}, expected 0 to {count - 1}")
        if answer["ns"] is not None and not _is_time(answer["ns"], 0):
            raise self._error(f"{where}: ns is {answer['ns']!r}, expected a number of 0 or more, or null")
        if not _is_time(answer.get("beyond", 1), 1) or not isinstance(answer.get("bound", ""), str):
            raise self._error(f"{where}: expected beyond as a number of 1 or more, and bound as text")
        return at, answer

    def _error(self, problem: str) -> InputError:
        return InputError(f"compute program '{' '.join(self.command)}' {problem}")


def question(work: Work, device: Device) -> str:
    """Return what the program reads."""
    about = {
        "peak_flops": device.peak,
        "memory_bytes_per_s": device.memory,
        "peaks": dict(device.peaks),
    }
    lines: list[dict[str, Any]] = [{"device": about}]
    lines += [
        {
            "id": at,
            "name": name,
            "kind": work.kind(at),
            # -1, not named, is no number that a program should have to know.
            "operations": max(int(work.operations[at]), 0),
            "bytes": max(int(work.size[at]), 0),
            "precision": work.precisions[at],
            "gemm": [gemm._asdict() for gemm in work.gemms[at]],
            "recorded_ns": int(work.recorded[at]),
        }
        for at, name in enumerate(work.names)
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


def _is_time(value: Any, low: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value < 2.0**63


def _feed(process: Supervised, text: bytes) -> None:
    """Write to a program, which may have ended before it has read all."""
    with contextlib.suppress(OSError):
        process.stdin.write(text)
    with contextlib.suppress(OSError):
        process.stdin.close()


def _drain(process: Supervised, pipe: IO[bytes], kept: bytearray, most: int) -> None:
    """Read what a program writes; it is killed if that is more than `most` bytes."""
    # `os.read` returns what is there: a read of whole blocks would wait for more.
    with contextlib.suppress(OSError):
        while len(kept) <= most and (block := os.read(pipe.fileno(), _BLOCK)):
            kept += block
    if len(kept) > most:
        process.stop()
