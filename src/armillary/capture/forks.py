"""A process that has imported PyTorch once, from which the ranks of a run are forked.

Importing PyTorch and what a capture replaces of it takes 3.3 s of CPU and 300 MB, which ranks so have in common.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from armillary.base.errors import ArmillaryError, InputError

POLL_SECONDS = 0.05


class Forks:
    """The process, from the side of who asks it for ranks."""

    def __init__(self, options: dict[str, Any], words: Sequence[str], printed: Path) -> None:
        """Start it.

        Args:
            options: Those that all ranks share.
            words: The script and its arguments.
            printed: File of what it prints itself.
        """
        self._printed = printed
        # No GPU: one that is there would be seen beside those that are not.
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        line = [sys.executable, "-m", "armillary.capture.script", json.dumps(options), *words]
        with printed.open("wb") as out:
            self._process = subprocess.Popen(
                line, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._asks, self._told = self._process.stdin, self._process.stdout.fileno()
        os.set_blocking(self._told, False)
        self._rest = b""

    def close(self) -> None:
        """End it, and all ranks that run."""
        # It ends them when nobody can ask it for more.
        self._asks.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def begin(self, rank: int, alike: Sequence[Sequence[int]], printed: Path, **options: Any) -> None:
        """Let a rank begin, with options of its own; what it prints goes to a file."""
        line = json.dumps({"rank": rank, "alike": alike, "printed": str(printed), **options}) + "\n"
        try:
            self._asks.write(line.encode())
            self._asks.flush()
        except BrokenPipeError:  # it has ended, which `ended` says
            pass

    def ended(self) -> dict[int, int]:
        """Return ranks that have ended since the last call, with their exit codes.

        Raises:
            InputError: PyTorch or a compiler is missing.
            ArmillaryError: the process itself has ended.
        """
        try:
            found = os.read(self._told, 1 << 16)
        except BlockingIOError:
            return {}
        if not found:
            said = self._printed.read_text(errors="replace").strip().splitlines()
            raise ArmillaryError(
                f"the process that starts the ranks ended with exit code {self._process.wait()}: "
                f"{said[-1] if said else 'it printed nothing'}"
            )
        *lines, self._rest = (self._rest + found).split(b"\n")
        ends: dict[int, int] = {}
        for line in lines:
            said = json.loads(line)
            if "refused" in said:
                raise (InputError if said["input"] else ArmillaryError)(said["refused"])
            ends[said["rank"]] = said["status"]
        return ends


def serve(prepare: Callable[[], None], run: Callable[[dict[str, Any]], None]) -> None:
    """Fork a process for each rank that is asked for, until nobody can ask any more; it does not return.

    Args:
        prepare: Called first, for what all of them need.
        run: Called in the process of each, with what was asked; it does not return.
    """
    # What a rank reads and prints has nothing to do with these two.
    asked, told = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)

    def tell(**said: Any) -> None:
        os.write(told, json.dumps(said).encode() + b"\n")

    try:
        prepare()
    except ArmillaryError as error:
        tell(refused=str(error), input=isinstance(error, InputError))
        os._exit(error.exit_code)
    ranks: dict[int, int] = {}
    rest = b""
    while True:
        if select.select([asked], [], [], POLL_SECONDS)[0]:
            found = os.read(asked, 1 << 16)
            if not found:
                break
            *lines, rest = (rest + found).split(b"\n")
            for line in lines:
                one = json.loads(line)
                process = os.fork()
                if not process:
                    os.close(asked)
                    os.close(told)
                    _print_to(one["printed"])
                    run(one)
                ranks[process] = one["rank"]
        while ranks:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                break
            tell(rank=ranks.pop(process), status=os.waitstatus_to_exitcode(status))
    for process in ranks:
        os.kill(process, signal.SIGKILL)
    os._exit(0)


def _print_to(file: str) -> None:
    out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)
