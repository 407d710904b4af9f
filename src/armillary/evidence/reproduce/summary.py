"""All studies with their defaults on one page: claim, number, ours, verdict, why."""

from __future__ import annotations

import hashlib
import importlib
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.base.errors import ArmillaryError
from armillary.base.files import write_text
from armillary.base.hints import one_line
from armillary.base.page import html_text
from armillary.base.text import json_text
from armillary.evidence.reproduce.judge import DEFINITION, VERDICTS
from armillary.evidence.reproduce.outcome import Line, Outcome, claims_table
from armillary.evidence.reproduce.page import claims_html, write_html
from armillary.explore.runner.identity import digest, sources

if TYPE_CHECKING:
    from rich.console import Group, RenderableType


@dataclass(frozen=True)
class Judged:
    """What one study found.

    Attributes:
        name: Of the study.
        title: What was simulated; empty if it failed.
        seconds: How long that took.
        lines: Its claims.
        error: Why it failed, on one line; empty if it did not.
    """

    name: str
    title: str
    seconds: float
    lines: tuple[Line, ...]
    error: str = ""


def study(name: str) -> Any:
    """Return the module of a study: it has `Assumptions` and ``run(Assumptions) -> Outcome``."""
    return importlib.import_module(f"armillary.evidence.reproduce.{name.replace('-', '_')}")


def judged(name: str) -> Judged:
    """Run a study with its defaults; whatever ends it early becomes its error, so that others are not lost."""
    begin = time.monotonic()
    try:
        made = study(name)
        # Imported here, so that a study that does not import is its error and not that of all.
        outcome: Outcome = made.run(made.Assumptions())
        lines = tuple(claim.line() for claim in outcome.claims)
    except ArmillaryError as error:
        return Judged(name, "", time.monotonic() - begin, (), one_line(str(error)))
    except Exception as error:  # a fault of one study
        return Judged(name, "", time.monotonic() - begin, (), one_line(f"{type(error).__name__}: {error}"))
    return Judged(name, outcome.title, time.monotonic() - begin, lines)


class Saved:
    """A folder with what studies found, one file each; what another program found there is not used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # A hash of all sources: results of another program are not this one's.
        own = [path.read_text("utf-8") for path in sorted(Path(__file__).parent.glob("*.py"))]
        self._program = hashlib.sha256(digest([sources(), own]).encode()).hexdigest()[:32]

    def get(self, name: str) -> Judged | None:
        """Return what was found; None if there is nothing, or nothing of this program."""
        try:
            data = json.loads(self._path(name).read_text("utf-8"))
            # pop: the rest must be the fields of Judged.
            if data.pop("program") != self._program:
                return None
            lines = tuple(Line(**{**each, "cases": tuple(each["cases"])}) for each in data.pop("lines"))
            found = Judged(**data, lines=lines)
            # What cannot be drawn is thrown away with the error that shows it.
            table([found])  # what cannot be shown is of no use
            return found
        # Any damage of the file: the study runs again.
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None

    def put(self, found: Judged) -> None:
        """Keep what a study found.

        Raises:
            InputError: the file cannot be written.
        """
        write_text(
            self._path(found.name), json.dumps({"program": self._program, **asdict(found)}, indent=1) + "\n"
        )

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"


def title(found: Sequence[Judged]) -> str:
    """Return how many claims of how many studies got which verdict."""
    # Words of all claims, over all studies.
    words = Counter(line.verdict for each in found for line in each.lines)
    text = f"{words.total()} claims of {len(found)} published studies: "
    text += ", ".join(f"{word} {words[word]}" for word in VERDICTS)
    failed = [each.name for each in found if each.error]
    return text + (f"; failed: {', '.join(failed)}" if failed else "")


def table(found: Sequence[Judged]) -> Group:
    """Return all claims for the terminal."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(title(found), style="bold")]
    for each in found:
        # An error stands where the title would.
        head = f"{each.name}: {each.title or each.error}"
        parts += [Text(), claims_table(each.lines, head) if each.lines else Text(head, style="red")]
    return Group(*parts, Text(), Text(DEFINITION, style="dim"))


def write_json(found: Sequence[Judged], path: Path) -> None:
    """Write the definition of the verdicts, and every claim with the cases that decide it.

    Raises:
        InputError: the file cannot be written.
    """
    data = {"title": title(found), "definition": DEFINITION, "studies": [asdict(each) for each in found]}
    write_text(path, json_text(data, indent=1) + "\n")


def write_page(found: Sequence[Judged], path: Path) -> None:
    """Write one HTML page that needs nothing else.

    Raises:
        InputError: the file cannot be written.
    """
    parts = [
        "<h1>Published studies, made again</h1>",
        f"<p>{html_text(title(found))}</p>",
        f"<p>{html_text(DEFINITION)}</p>",
    ]
    for each in found:
        parts.append(f"<h2>{html_text(each.name)}</h2>")
        parts.append(f"<p>{html_text(each.error or each.title)} ({each.seconds:.0f} s)</p>")
        if not each.error:
            parts.append(claims_html(each.lines))
    write_html(path, "Published studies, made again", parts)
