"""Terms of our own that the field has words for stay out: as names in src, as terms in the docs."""

from __future__ import annotations

import io
import re
import tokenize
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src/armillary"


class Term(NamedTuple):
    """A term, what the field says, the rooms where it meant that, and the files there where it is an everyday word."""

    old: str
    new: str
    rooms: tuple[str, ...] = ("",)
    everyday: tuple[str, ...] = ()


NAMES = (
    Term("lane", "chunk_flow, or stream and thread", ("engine", "collective", "convert", "explore")),
    Term("train", "chunk_batch", ("engine",)),
    Term("course", "chunk_routes"),
    Term("bundle", "chunk_step"),
    Term("under_way", "in_flight"),
    Term(
        "machine",
        "member_state",
        ("engine/astra_sim/phase_kernel.py", "engine/astra_sim/collective_kernel.py"),
    ),
    Term("product", "gemm", ("compute", "trace", "engine", "workload"), ("workload/layers/nets",)),
    Term("tile", "template", ("trace", "workload"), ("workload/pipeline/columns.py",)),
    Term(
        "family",
        "axis_set",
        ("trace", "engine/physical", "workload", "lab/extrapolation"),
        ("workload/single_nodes.py", "lab/extrapolation/recorded/operator_dims.py"),
    ),
    Term(
        "digit",
        "mesh_dim",
        ("trace", "engine/physical", "workload", "lab/extrapolation"),
        ("trace/columns.py",),
    ),
    Term("wire", "edge, or link", ("collective", "engine/messages", "engine/physical", "explore")),
    Term("twin", "reference"),
    Term("witness", "reference"),
    Term("referee", "reference"),
    Term("rung", "network_model"),
    Term("stand_in", "surrogate"),
)

PROSE = {
    r"matrix products?": "GEMM",
    r"(chunk trains?|trains? of chunks)": "chunk batch",
    r"stand-ins?": "surrogate trace",
    r"under way": "in flight",
    r"(slow|interpreted) twins?": "reference evaluator",
    r"(witness|witnesses|referee|referees|(?<!benchmarks/)rungs?)": "reference, network model",
    r"bundles?": "chunk step",
}


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case and singular: ``CH_ROUTES`` and ``ChRoutes`` are ch, route."""
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", name)
    return [part.lower().removesuffix("s") if len(part) > 3 else part.lower() for part in parts]


@cache
def names_in(path: Path) -> list[tuple[str, int, list[str]]]:
    """Return the names of a file, each once: name, the first line that has it, and its words."""
    first: dict[str, int] = {}
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type == tokenize.NAME:
            first.setdefault(token.string, token.start[0])
    return [(name, line, words_of(name)) for name, line in first.items()]


@pytest.mark.parametrize("term", NAMES, ids=lambda term: term.old)
def test_names_are_those_of_the_field(term: Term) -> None:
    old, found = words_of(term.old), []
    plural = [*old[:-1], re.sub(r"y$", "ie", old[-1])]
    for path in sorted(SRC.rglob("*.py")):
        place = path.relative_to(SRC).as_posix()
        if not place.startswith(term.rooms) or place.startswith(term.everyday or ("/",)):
            continue
        for name, line, words in names_in(path):
            if any(words[i : i + len(old)] in (old, plural) for i in range(len(words))):
                found.append(f"{place}:{line}: {name}")
    assert not found, f"say {term.new}: {found[:10]}"


@pytest.mark.parametrize("phrase", PROSE)
def test_docs_use_the_terms_of_the_field(phrase: str) -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = [
        f"{page.relative_to(ROOT)}: {match.group()}"
        for page in pages
        for match in re.finditer(rf"\b{phrase}\b", page.read_text(encoding="utf-8"), re.IGNORECASE)
    ]
    assert not found, f"say {PROSE[phrase]}: {found[:10]}"
