"""The options of `armillary run` for terms of interference and overhead."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from armillary.cli.command import option
from armillary.cli.options import MACHINE
from armillary.cli.outputs import F

if TYPE_CHECKING:
    from armillary.engine.common.timeline import Timeline
    from armillary.explore.term_costs import TermCosts
    from armillary.platform.model import Platform


def terms_options(function: F) -> F:
    """Add ``--no-terms`` and ``--term-costs`` to a command."""
    none = option("--no-terms", is_flag=True, heading=MACHINE, help="Switch off platform.terms, to compare.")
    costs = option(
        "--term-costs", is_flag=True, heading=MACHINE, help="Show what each of platform.terms costs."
    )
    return none(costs(function))  # type: ignore[no-any-return]


def chosen_terms(platform: Platform, no_terms: bool) -> Platform:
    """Return a platform without terms if that was asked for."""
    if not no_terms:
        return platform
    from armillary.explore.term_costs import with_terms
    from armillary.platform.terms import Terms

    return with_terms(platform, Terms())


def costs_of(platform: Platform, simulate: Callable[[Platform], Timeline]) -> TermCosts:
    """Return what each term of a platform costs.

    Raises:
        InputError: it has none.
    """
    from armillary.base.errors import InputError
    from armillary.explore.term_costs import term_costs

    if not platform.terms.on():
        raise InputError("--term-costs: all terms are off; expected platform.terms in the study")
    return term_costs(platform, simulate)


def print_costs(costs: TermCosts) -> None:
    """Print what each term costs."""
    from armillary.explore.term_costs import print_term_costs

    print_term_costs(costs)
