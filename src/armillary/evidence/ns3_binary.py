"""A user's own build of ASTRA-sim's ns-3 back end on the same input: its lines are read, and set beside ours.

The program gets the flags of `armillary astra-sim ns3` as ``--key=value``, runs in the current folder, since its paths
are relative to that, and prints a line for each rank that ends (common/Logging.cc, workload/Workload.cc)::

    [2026-03-25 12:00:00.000] [workload] [info] sys[0] finished, 34030 cycles, exposed communication 34030 cycles.

Of what else it prints nothing is read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from armillary.base.errors import ConsentError, InputError
from armillary.base.programs import find_program
from armillary.compute.exchange import QUOTED, ExchangeError, TooMuchError, exchange

if TYPE_CHECKING:
    from rich.table import Table

MOST_WRITTEN = 64 * 2**20
"""Bytes that the program may write: a rank has some 1 kB of lines."""
MOST_CYCLES = 2**63 - 1
_LINE = re.compile(
    r"(?:\[[^\]]*\] ){2}\[info\] sys\[(\d{1,9})\] finished, (\d{1,19}) cycles, exposed communication \d{1,20} cycles\.?"
)
_LIKE = "finished,"
EXAMPLE = "[TIME] [workload] [info] sys[0] finished, 34030 cycles, exposed communication 34030 cycles."


@dataclass(frozen=True)
class Ending:
    """Ranks, one after the other, that end alike in both engines.

    Attributes:
        first: The first of them.
        last: The last of them.
        ours: Cycles after which they end in ours, ns.
        theirs: And in the program.
    """

    first: int
    last: int
    ours: int
    theirs: int

    @property
    def ratio(self) -> float:
        """Ours over theirs, less 1; nan: theirs ends at 0."""
        return self.ours / self.theirs - 1 if self.theirs else float("nan")


@dataclass(frozen=True)
class Beside:
    """The ends of all ranks in two engines.

    Attributes:
        program: Path of the program.
        ours: Cycles by rank.
        theirs: The same of the program.
    """

    program: str
    ours: tuple[int, ...]
    theirs: tuple[int, ...]

    @property
    def rows(self) -> list[Ending]:
        """Return ranks by what they end at; those that follow each other and are alike are one row."""
        pairs = list(zip(self.ours, self.theirs, strict=True))
        starts = [0, *(at + 1 for at, (a, b) in enumerate(pairwise(pairs)) if a != b), len(pairs)]
        return [Ending(first, after - 1, *pairs[first]) for first, after in pairwise(starts) if first < after]

    @property
    def headline(self) -> str:
        """The last rank in both, and the largest difference of any."""
        mine, other = max(self.ours, default=0), max(self.theirs, default=0)
        ratio = f"{100 * (mine / other - 1):+.2f} %" if other else "not known"
        worst = max((abs(row.ratio) for row in self.rows if row.theirs), default=0.0)
        return (
            f"Last rank: {mine:,} cycles here, {other:,} in {self.program} ({ratio}); "
            f"ranks differ by {100 * worst:.2f} % at most"
        )


def run_binary(
    binary: str | Path, flags: Sequence[str], ranks: int, *, seconds: float, folder: Path | None = None
) -> list[int]:
    """Run a build of the ns-3 back end, and return the cycles after which each rank ends.

    Args:
        binary: Its path.
        flags: ``--key=value``.
        ranks: How many there are.
        seconds: Within which it ends; then it is ended with all that it has started.
        folder: Where it runs; None: here.

    Raises:
        ConsentError: nobody has allowed it.
        InputError: it cannot be started, gives no answer, or another than that of each rank.
    """
    where = folder or Path.cwd()
    path = allowed(binary, where)
    words = [str(path), *flags]
    try:
        answer = exchange(path, words, where, "", most=MOST_WRITTEN, seconds=seconds)
    except TooMuchError as error:
        raise InputError(
            f"--ns3-binary {binary}: {error}, expected a few lines for each of {ranks} ranks"
        ) from error
    except ExchangeError as error:
        raise InputError(f"--ns3-binary {binary}: {error}") from error
    if answer.problem:
        raise InputError(f"--ns3-binary {binary}: {answer.problem}")
    try:
        return read_finishes(answer.out.decode(), ranks)
    except UnicodeDecodeError:
        raise InputError(f"--ns3-binary {binary}: wrote what is not UTF-8, expected lines of text") from None
    except InputError as error:
        raise InputError(f"--ns3-binary {binary}: {error}") from None


def allowed(binary: str | Path, folder: Path | None = None) -> Path:
    """Return the path of a build of the ns-3 back end, if it may be started.

    Raises:
        ConsentError: nobody has allowed it.
        InputError: it is not there.
    """
    where = folder or Path.cwd()
    try:
        # A name without a folder is that of a file here, and not looked for where programs are.
        return find_program([str((where / binary).absolute())], where)
    except (ConsentError, InputError) as error:
        raise type(error)(f"--ns3-binary: {error}") from error


def read_finishes(text: str, ranks: int) -> list[int]:
    """Return the cycles of each rank from what the program has printed.

    Raises:
        InputError: a line about an end is not as upstream prints it, a rank ends twice, is none, or does not end.
    """
    found: dict[int, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if _LIKE not in line:
            continue
        where = f"line {number} of its output, {line[:QUOTED]!r}"
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            raise InputError(f"{where}: expected {EXAMPLE}")
        rank, cycles = int(match[1]), int(match[2])
        if rank >= ranks:
            raise InputError(f"{where}: got rank {rank}, expected 0 to {ranks - 1}")
        if rank in found:
            raise InputError(f"{where}: rank {rank} ends again")
        if cycles > MOST_CYCLES:
            raise InputError(f"{where}: got {cycles} cycles, expected at most {MOST_CYCLES}")
        found[rank] = cycles
    missing = next((rank for rank in range(ranks) if rank not in found), None)
    if missing is not None:
        raise InputError(
            f"{len(found)} of {ranks} ranks end in its output, the first that does not is {missing}; expected a line "
            f"for each: {EXAMPLE}"
        )
    return [found[rank] for rank in range(ranks)]


def beside_table(found: Beside, top: int = 32) -> Table:
    """Return a row for each run of ranks that end alike, those that differ most if there are more than `top`."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("rank", "here", "program", "difference", ""):
        table.add_column(name, justify="left" if name == "rank" else "right")
    rows = found.rows
    kept = sorted(rows, key=lambda row: -abs(row.ours - row.theirs))[:top]
    for row in sorted(kept, key=lambda row: row.first):
        ranks = f"{row.first}" if row.first == row.last else f"{row.first} to {row.last}"
        share = f"{100 * row.ratio:+.2f} %" if row.theirs else "not known"
        table.add_row(ranks, f"{row.ours:,}", f"{row.theirs:,}", f"{row.ours - row.theirs:+,}", share)
    if len(rows) > top:
        table.add_row(f"… and {len(rows) - top} more that differ less")
    return table
