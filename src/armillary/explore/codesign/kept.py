"""What a search has found of a workload on a machine, kept in a store of sweeps, so that it can go on later."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from armillary.base.errors import InputError
from armillary.base.json_text import json_within
from armillary.compute.machine import Machine
from armillary.explore.codesign.workload import Taken, Workload
from armillary.explore.runner import Store
from armillary.explore.runner.identity import Identity, digest, named_files, sources
from armillary.explore.sweep.point import Row


class Kept:
    """Results in a store; without one, nothing is kept."""

    def __init__(self, path: str | Path | None, folder: Path) -> None:
        """Open or make a store.

        Raises:
            InputError: it is another kind of file, or another process writes to it.
        """
        self._store = Store(path) if path is not None else None
        self._folder = folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._store is not None:
            self._store.close()

    def take(self, workload: Workload, machine: Machine, simulate: Callable[[], Taken]) -> Taken:
        """Return what a workload takes on a machine, from the store, or simulated and stored.

        Raises:
            InputError: it is impossible there, or, not stored, too slow.
        """
        if self._store is None:
            return simulate()
        keys = [workload.key, machine.keys, machine.software, machine.name]
        known = Identity(digest([sources(), keys, named_files(self._folder, keys)]), "codesign")
        found = self._store.kept(known)
        if found is not None:
            status, text, measures = found
            if status != "ok":
                raise InputError(text)
            if taken := _taken(text, measures):
                return taken
        began = time.monotonic()
        taken = simulate()
        texts = json.dumps([taken.how, taken.limits, taken.assumptions])
        measures = {"seconds": taken.seconds, "own": taken.own}
        if taken.interval is not None:
            measures |= dict(zip(("low", "high"), taken.interval, strict=True))
        row = Row(0, {}, known.work, "ok", texts, measures, time.monotonic() - began)
        self._store.add([(known, row)])
        return taken


def _taken(text: str, measures: dict[str, float]) -> Taken | None:
    """Return a stored result; None: it is no such, and is found anew."""
    try:
        how, limits, assumptions = json_within(text)
        ends = (float(measures["low"]), float(measures["high"])) if "low" in measures else None
        seconds, own = float(measures["seconds"]), float(measures["own"])
    except (ValueError, TypeError, KeyError):
        return None
    return Taken(seconds, ends, own, str(how), str(limits), tuple(map(str, assumptions)))
