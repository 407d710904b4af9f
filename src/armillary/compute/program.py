"""Another program as a compute model: kernels go in, and times come out, as lines of JSON.

The program is started once for all kernels of a simulation. It reads to the end of its input::

    {"device": {"peak_flops": 9.89e14, "memory_bytes_per_s": 3.35e12, "peaks": {"bf16": 9.89e14}}}
    {"id": 0, "name": "mlp.up.gemm", "kind": "gemm", "operations": 137438953472, "bytes": 100663296,
     "precision": "bf16", "gemm": [{"calls": 1, "batch": 1, "m": 4096, "n": 4096, "k": 4096}], "recorded_ns": 0}

(each object on one line), and writes one line per kernel, in any order: ``{"id": 0, "ns": 190000.0}``; null is for a
kernel that it does not know. ``"bound"`` (text) and ``"beyond"`` (number, see `Times`) may be there, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from armillary.base.errors import ConsentError, InputError
from armillary.base.programs import find_program
from armillary.compute.exchange import QUOTED, ExchangeError, TooMuchError, exchange
from armillary.compute.model import ComputeModel, Device, Times, Work

_ROOM, _LINE = 1 << 20, 1 << 12
"""Bytes of an answer at most, and for each kernel besides."""


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
            answer = exchange(
                self.path, self.command, self.folder, text, most=_ROOM + _LINE * count, seconds=self.timeout
            )
        except TooMuchError as error:
            raise self._error(f"{error}, expected a line for each of {count} kernels") from error
        except ExchangeError as error:
            raise self._error(str(error)) from error
        if answer.problem:
            raise self._error(answer.problem)
        try:
            return answer.out.decode()
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
        where = f"line {number} of its answer, {line[:QUOTED]!r}"
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
