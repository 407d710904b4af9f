"""Run a PyTorch script as all ranks on this machine and collect their traces: all of them or none."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from armillary.base.errors import ArmillaryError, InputError
from armillary.base.posix import needs_posix
from armillary.convert.collect_script import REFUSED
from armillary.convert.collected import CollectedRank, read_collected
from armillary.convert.processes import RankProcesses
from armillary.convert.torch_import import import_torch

_OURS = re.compile(r"(host|device|collected)_\d+\.json(\.gz)?")


@dataclass(frozen=True)
class Collected:
    """A collected run."""

    ranks: list[CollectedRank]
    warning: str = ""
    """Which rank failed after its steps were recorded, and how; empty for none."""


def collect_script(
    script: str | Path,
    arguments: Sequence[str] = (),
    *,
    folder: str | Path,
    ranks: int = 1,
    warmup: int = 2,
    steps: int = 1,
    whole: bool = False,
) -> Collected:
    """Run `script` once for each rank, as torchrun would on one machine, and collect the traces.

    A step ends when the first optimizer that the script uses has stepped. A script that calls
    `armillary.collect` itself decides what to record; only the folder is the one given here.

    Args:
        script: A Python file; it is run unchanged, as ``__main__``.
        arguments: Its arguments.
        folder: Where the files go when all ranks are done; those of an earlier run are replaced.
        ranks: Number of processes.
        warmup: Steps before the recorded ones.
        steps: Recorded steps.
        whole: Record the whole script as one step.

    Raises:
        InputError: the script is missing, or PyTorch is, or a rank ended before its last step.
        ArmillaryError: a rank failed before its last step.
    """
    path, target = Path(script), Path(folder)
    if not path.is_file():
        raise InputError(f"{path}: no such file, expected a Python script")
    if ranks < 1:
        raise InputError(f"collect: ranks is {ranks}, expected 1 or more")
    needs_posix("armillary trace collect")
    import_torch("armillary trace collect")
    try:
        target.mkdir(parents=True, exist_ok=True)
        # Inside the target, so that moving the files at the end is a rename within one file system.
        fresh = Path(tempfile.mkdtemp(prefix=".collect.", dir=target))
    except OSError as error:
        raise InputError(f"{target}: {error.strerror}, expected a folder to write to") from error
    try:
        options = {"folder": str(fresh.resolve()), "warmup": warmup, "steps": steps, "whole": whole}
        if whole:
            options |= {"warmup": 0, "steps": 1}
        words = ["-m", "armillary.convert.collect_script", json.dumps(options), str(path), *arguments]
        with RankProcesses(words, ranks) as processes:
            warning = _wait(processes, fresh, path)
        found = read_collected(fresh)
        if len(found) != ranks:
            raise InputError(
                f"{path}: {len(found)} of {ranks} ranks were collected; expected a script whose every process "
                "trains, or collects with armillary.collect"
            )
        _replace(fresh, target)
        return Collected(found, warning)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _wait(processes: RankProcesses, folder: Path, script: Path) -> str:
    """Wait for all ranks; return the first failure of one whose traces were complete, as gloo has at times on exit."""
    while True:
        failures = processes.failures()
        for rank, how in failures.items():
            # A refusal also ends with an exit code, so it must be looked for before the general failure.
            if (refused := folder / f"{REFUSED}{rank}").exists():
                raise InputError(f"{script}: {refused.read_text()}")
            # A rank writes this file last: without it its traces are not complete.
            if not (folder / f"collected_{rank}.json").exists():
                raise ArmillaryError(f"{script}: {how}; nothing was collected")
        if not processes.running():
            return "".join(list(failures.values())[:1])
        processes.wait()


def _replace(fresh: Path, target: Path) -> None:
    for old in target.iterdir():
        if _OURS.fullmatch(old.name):
            old.unlink()
    for file in fresh.iterdir():
        file.replace(target / file.name)
