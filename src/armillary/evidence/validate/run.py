"""Choose suites and their files, and run them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from armillary.base.counts import check_count
from armillary.base.errors import InputError
from armillary.evidence.validate.sniff import suite_of
from armillary.evidence.validate.suites import chosen, suites
from armillary.evidence.validate.table import Suite, Table

Told = Callable[[str, int, int], None]
"""Called with (name of the suite, done, of) while rows are predicted."""
LOG = "requests.jsonl"
"""What the measured requests of a run are called."""
MEASURED = Path("../shared/measured")
"""Default folder of measurements."""


@dataclass(frozen=True)
class Job:
    """A suite and its files; none: the published numbers."""

    suite: Suite
    files: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Skipped:
    """A suite that cannot run."""

    suite: Suite
    reason: str


def plan(
    names: Iterable[str] = (), data: Iterable[Path] = (), measured: Path | None = None
) -> tuple[list[Job], list[Skipped]]:
    """Return the jobs that `validate` would run, and the suites that it would skip."""
    names = tuple(names)
    picked = chosen(names, suites())
    # With data named, nothing else runs: a user's file is what is asked about.
    if data := tuple(dict.fromkeys(data)):
        files: dict[str, tuple[Path, ...]] = {}
        for path in (file for each in data for file in _inside(each)):
            format_of = set(suite_of(path, picked).columns)
            # Suites of one format: times and memory of the same rows.
            for name in (suite.name for suite in picked if set(suite.columns) == format_of):
                files[name] = (*files.get(name, ()), path)
        return [Job(suite, files[suite.name]) for suite in picked if suite.name in files], []
    if measured is not None and not measured.is_dir():
        raise InputError(f"measured: there is no folder '{measured}'")
    jobs, skipped = [], []
    for suite in picked:
        if suite.asked and not names:
            skipped.append(Skipped(suite, f"{suite.asked}: name it to run it"))
            continue
        found = _files(suite, measured or MEASURED)
        if found is not None:
            jobs.append(Job(suite, found))
            continue
        # A missing folder is an error only where it was named.
        reason = f"no '{suite.needs}' in {measured or MEASURED}, see --measured"
        if suite.name in names:
            raise InputError(f"{suite.name}: {reason}")
        skipped.append(Skipped(suite, reason))
    return jobs, skipped


MOST_FOLDERS = 10_000
"""Folders that are looked through for the logs of runs."""


def _inside(path: Path) -> tuple[Path, ...]:
    """Return a file, or of a folder the logs of the runs below it; without any, its own files.

    Raises:
        InputError: a folder has neither.
    """
    if not path.is_dir():
        return (path,)
    found = _logs(path) or tuple(sorted(each for each in path.iterdir() if each.is_file()))
    if not found:
        raise InputError(
            f"{path}: there is no file in it, expected measurements, or a run with requests.jsonl"
        )
    return found


def _logs(folder: Path) -> tuple[Path, ...]:
    """Return the logs of requests below a folder."""
    found = []
    for count, (place, _, names) in enumerate(os.walk(folder)):
        check_count(count, MOST_FOLDERS, f"{folder}: folders", "a folder of runs")
        found += [Path(place, name) for name in names if name == LOG]
    return tuple(sorted(found))


def _files(suite: Suite, measured: Path) -> tuple[Path, ...] | None:
    """Return what the suite reads: nothing, a file, or the files of a folder; None where there are none."""
    if not suite.needs:
        # No file needed: the numbers are in the package.
        return ()
    path = measured / suite.needs
    if path.is_dir():
        return (
            # None: an empty folder is as good as none.
            tuple(sorted(each for each in path.iterdir() if each.is_file() and each.stem != "README"))
            or _logs(path)
            or None
        )
    return (path,) if path.is_file() else None


def run(jobs: Sequence[Job], progress: Told | None = None) -> tuple[Table, ...]:
    """Predict the rows of each job."""
    return tuple(job.suite.run(job.files, _named(job.suite.name, progress)) for job in jobs)


def _named(name: str, progress: Told | None) -> Callable[[int, int], None]:
    # The suite's name is added, as several run one after the other.
    return lambda done, of: progress(name, done, of) if progress else None


def validate(
    names: Iterable[str] | None = None,
    data: Iterable[str | Path] = (),
    measured: str | Path | None = None,
    progress: Told | None = None,
) -> tuple[Table, ...]:
    """Set predictions beside measurements.

    Args:
        names: Suites or patterns of them; None or none: all whose measurements are there.
        data: Files of measurements, each read by the suite (of `names`) whose columns it has; only these are run.
        measured: The folder of measurements; None: `MEASURED`, where that is.
        progress: See `Told`.

    Returns:
        A table for each suite that ran.

    Raises:
        InputError: an unknown name, a file of no known format, or measurements of a suite that was asked for by name
            are not there.
    """
    files = [*data]
    if "" in files:
        raise InputError("data: got '', expected the name of a file or folder")
    jobs, _ = plan(names or (), [Path(path) for path in files], Path(measured) if measured else None)
    return run(jobs, progress)
