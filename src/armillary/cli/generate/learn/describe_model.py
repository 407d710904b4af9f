"""What a statistical model has learned, for people: programs with their counts, pieces, and sizes as expressions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from armillary.base.errors import InputError, nearest
from armillary.cli.generate.learn.describe import to_text
from armillary.lab.learned.model import Entry, StatisticalModel
from armillary.lab.learned.monomials import Sum
from armillary.lab.learned.tree import Tree
from armillary.lab.learned.vocabulary import COLUMNS

if TYPE_CHECKING:
    from rich.table import Table

_WIDE = 60
"""Most letters of an expression."""


def model_tables(model: StatisticalModel) -> list[Table]:
    """Return what a model was trained on, its roles and its programs."""
    from armillary.report.plain import plain_table

    head = plain_table("trained on", "", left=2)
    for key, value in model.about.items():
        head.add_row(
            key,
            ", ".join(value)
            if isinstance(value, list)
            else f"{value:,}"
            if isinstance(value, int)
            else value,
        )
    if model.measured:
        head.add_row("traces of files", ", ".join(str(each.condition["trace"]) for each in model.measured))
    roles = plain_table("piece", "variants", "tokens", "lists of references", "worst fit", widest=30)
    for name, role in model.roles.items():
        # Of what is fitted, not of rules or copies.
        errors = [
            float(model.sums.error[at])
            for entries in role.numbers
            for entry in entries
            for _, at in _leaves(entry.sums)
            if entry.rule is None and entry.choice is None
        ]
        sizes = sorted({len(symbols) for symbols in role.symbols})
        roles.add_row(
            name, str(len(role.symbols)), f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}",
            str(sum(len(each.lists) for each in role.waits.values())), f"{max(errors, default=0.0):.1e}",
        )  # fmt: skip
    programs = plain_table("program", "classes", "blocks", widest=30)
    for kind, program in model.programs.items():
        name = " ".join(str(each) for each in kind[1:3])
        # (is not first, is not last) of the pipeline.
        stage = {(0, 0): "only", (0, 1): "first", (1, 0): "last", (1, 1): "inner"}[
            int(kind[4] or 0), int(kind[5] or 0)
        ]
        text = "; ".join(to_text(block) for block in program.blocks)
        programs.add_row(
            f"{name}, {stage} stage", f"{program.classes:,}", text if len(text) < 48 else text[:47] + "…"
        )
    return [head, roles, programs] if model.roles else [head]


def role_table(model: StatisticalModel, role: str) -> Table:
    """Return the sizes of a role as expressions of the condition.

    Raises:
        InputError: there is no such role.
    """
    from armillary.report.plain import plain_table

    if role not in model.roles:
        raise InputError(
            f"--role {role}: no such piece, expected one of {', '.join(model.roles)}{nearest(role, model.roles)}"
        )
    table = plain_table("token", "column", "value", left=3, widest=24)
    # The first variant shows the rule; others differ in constants.
    for entries in model.roles[role].numbers[:1]:
        for entry in entries:
            for question, text in _texts(model, entry):
                whole = f"{text} if {question}" if question else text
                short = whole if len(whole) <= _WIDE else whole[: _WIDE - 1] + "…"
                table.add_row(entry.token[0], COLUMNS[entry.column], short)
    return table


def _texts(model: StatisticalModel, entry: Entry) -> Iterator[tuple[str, str]]:
    if entry.rule is not None:
        yield "", str(entry.rule)
        return
    if entry.choice is not None:
        yield "", "as in the corpus"
        return
    for question, at in _leaves(entry.sums):
        # Terms of a sum lie in one array; `ptr` says where each begins.
        first, after = model.sums.ptr[at : at + 2]
        exponents = model.sums.exponents[first:after].astype(int)
        yield question, str(Sum(model.sums.coefficients[first:after], exponents, 0.0, 0.0))


def _leaves(tree: Tree, asked: str = "") -> Iterator[tuple[str, int]]:
    """Yield the leaves of a tree, each with the conditions that lead to it."""
    # A leaf.
    if tree.yes is None or tree.no is None:
        yield asked, tree.choice
        return
    sign = "is" if isinstance(tree.value, str) else ">"
    # Conditions on the way are joined by commas.
    more = f"{asked}, " if asked else ""
    yield from _leaves(tree.yes, f"{more}{tree.key} {sign} {tree.value}")
    yield from _leaves(tree.no, f"{more}not {tree.key} {sign} {tree.value}")
