"""A measurement of fidelity as tables and JSON."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.base.files import write_text
from armillary.base.text import json_text
from armillary.lab.fidelity.measure import TESTED, WAYS, Fidelity

if TYPE_CHECKING:
    from rich.table import Table

TITLES = {"made": "made", "nearest": "nearest of corpus"}
RANGES = {"between": False, "beyond": True}
"""Whether a condition has a number beyond those of the corpus."""
TESTS = {
    "degree": "dependencies of nodes", "duration": "durations of kernels", "size": "sizes of nodes",
    "path": "critical paths",
}  # fmt: skip


def tables(found: Fidelity) -> list[Table]:
    """Return errors by range of conditions, step times by machine, and tests."""
    from armillary.report.plain import plain_table

    errors = plain_table(
        "error against true", "conditions", *(TITLES[way] for way in WAYS), "largest made", widest=34
    )
    for name, beyond in RANGES.items():
        count = sum(bool(each.beyond) == beyond for each in found.compared)
        refused = sum(bool(each.beyond) == beyond and bool(each.refused) for each in found.compared)
        for what, title in (("time", "step time"), ("nodes", "nodes"), ("bytes", "bytes")):
            made = np.abs(found.errors(what, "made", beyond=beyond))
            # No condition in this range, or all of them were refused.
            if not len(made):
                continue
            cells = [_percent(np.abs(found.errors(what, way, beyond=beyond)).mean()) for way in WAYS]
            errors.add_row(
                f"{title}, {name} the corpus", f"{count - refused} of {count}", *cells, _percent(made.max())
            )
    machines = plain_table("step time, mean error", *(TITLES[way] for way in WAYS), "largest made", widest=24)
    for name in dict.fromkeys(name for each in found.compared for name in each.times):
        of_way = [np.abs(found.errors("time", way, machine=name)) for way in WAYS]
        machines.add_row(name, *(_percent(each.mean()) for each in of_way), _percent(of_way[0].max()))
    tests = plain_table("two samples", *(TITLES[way] for way in WAYS), widest=34)
    for name in TESTED if found.tests else ():
        cells = [f"D {found.tests[name][way].distance:.3f}, p {found.tests[name][way].p:.2g}" for way in WAYS]
        tests.add_row(f"{TESTS[name]} (KS)", *cells)
    if found.accuracy:
        tests.add_row("accuracy of a classifier", *(_percent(found.accuracy[way]) for way in WAYS))
        distances = f"{found.distances['made']:.3g} (true {found.distances['true']:.3g})"
        # The baseline is a trace of the corpus, so its distance is 0 and it is always a copy.
        tests.add_row("distance to the nearest trained on", distances, "0")
        tests.add_row("copies of traces trained on", _percent(found.copies["made"]), "100 %")
    reasons = plain_table("refused", widest=96)
    for reason in dict.fromkeys(each.refused for each in found.compared if each.refused):
        reasons.add_row(reason)
    parts = [errors, machines, tests, reasons]
    return [part for part in parts if part.row_count]


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def write_json(found: Fidelity, path: Path) -> None:
    """Write all numbers.

    Raises:
        InputError: the file cannot be written.
    """
    document: dict[str, Any] = asdict(found)
    for what in ("time", "nodes", "bytes"):
        for name, beyond in RANGES.items():
            for way in WAYS:
                errors = np.abs(found.errors(what, way, beyond=beyond))
                if len(errors):
                    summary = {
                        "mean": float(errors.mean()),
                        "largest": float(errors.max()),
                        "count": len(errors),
                    }
                    document.setdefault("errors", {})[f"{what}, {name} the corpus, {way}"] = summary
    write_text(path, json_text(document, indent=1) + "\n")
