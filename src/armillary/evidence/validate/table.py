"""The result of a validation: predictions beside measurements, and their bars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Progress = Callable[[int, int], None]
"""Called with (done, of) while rows are predicted."""


@dataclass(frozen=True)
class Row:
    """One measurement beside its prediction, both in the unit of the table.

    Attributes:
        label: What was measured, e.g. ``H100 all-reduce 8 GPUs 64 MiB``.
        measured: Above 0.
        predicted: Above 0; nan: refused, see `reason`.
        group: By which errors are summed up in parts: device, operation, model size.
        low: Lower end of the interval that the prediction states; nan: none.
        high: Upper end.
        reason: Why there is no prediction.
        seen: How constants relate to it: ``fitted`` (they were fitted to it), ``twin`` (to another row of its plan),
            ``unseen``; ``""``: not known.
    """

    label: str
    measured: float
    predicted: float
    group: str = ""
    # NaN: no interval.
    low: float = float("nan")
    high: float = float("nan")
    reason: str = ""
    seen: str = ""

    @property
    def error(self) -> float:
        """Signed relative error: 0.1 is predicted 10 % too high."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Bar:
    """What a table must reach.

    Attributes:
        mean: Mean absolute relative error, at most.
        worst: Largest, at most; None: not asked.
        rank: Spearman's rank correlation, at least; None: not asked.
    """

    mean: float
    worst: float | None = None
    rank: float | None = None


@dataclass(frozen=True)
class Table:
    """One table of a validation.

    Attributes:
        name: Short, of the command line: ``megatron-table-1``.
        title: For people.
        unit: Of `Row.measured`: ``us``, ``ms``, ``s``, ``TFLOP/s``, ``tokens/s``.
        source: Paper and table, or file, from which the measurements are.
        rows: At least one.
        relation: How constants and rows relate: ``blind`` (no constant has seen them), ``held out`` (constants were
            fitted to other rows of the same set), ``fitted``, or ``given`` (a person's own file: nothing says whether
            constants have seen some of it).
        bar: What it must reach; None: shown only.
        notes: What a person should know: assumptions, and why it fails where it does.
        parts: Errors with rows left out in another way, as further tables: leave one size, device or count out.
    """

    name: str
    title: str
    unit: str
    source: str
    rows: tuple[Row, ...]
    relation: str
    bar: Bar | None = None
    notes: tuple[str, ...] = ()
    parts: tuple[Table, ...] = field(default=())


@dataclass(frozen=True)
class Suite:
    """One validation that can be run.

    Attributes:
        name: Of its table.
        title: For people.
        needs: Path of its measurements below the folder of measured data; ``""``: published in a paper, always there.
        run: Predicts the rows of the given files; without a file the published numbers.
        columns: Names in the header of a CSV file that tell this format from all others; empty: it reads none.
        also: Headers of other files that it reads.
        asked: Why it runs only where it is named, or a file of its is; "": it always does.
    """

    name: str
    title: str
    needs: str
    run: Callable[[Sequence[Path], Progress], Table]
    columns: Sequence[str] = ()
    also: Sequence[Sequence[str]] = ()
    asked: str = ""
