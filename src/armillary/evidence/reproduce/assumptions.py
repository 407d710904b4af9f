"""What a reproduction has to assume: dataclass fields that know their unit, their reason and what else they could be.

A published study rarely states every number. Each one that we chose is a field made by `assumed`; the command line
makes an option of it, the page lists it, and `variations` replaces it by its alternatives, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from armillary.base.errors import InputError

T = TypeVar("T")
A = TypeVar("A")
_KEY = "assumed"


@dataclass(frozen=True)
class Assumed:
    """What is known of one assumption.

    Attributes:
        text: Its default, as a person writes it: ``"500 ns"``.
        parse: Reads such a text.
        why: One line: what speaks for the default, or where it is from.
        others: Other values that somebody could have chosen.
        choices: All that may be written; empty: whatever `parse` takes.
    """

    text: str
    parse: Callable[[str], Any]
    why: str
    others: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()


def assumed(
    text: str,
    parse: Callable[[str], T],
    why: str,
    *,
    others: Sequence[str] = (),
    choices: Sequence[str] = (),
) -> T:
    """Return a dataclass field; see `Assumed`."""
    # Read at import: a default that cannot be read fails every test.
    about = Assumed(text, parse, why, tuple(others), tuple(choices))
    value: T = field(default=parse(text), metadata={_KEY: about})
    return value


def choice(text: str, choices: Sequence[str], why: str, *, others: Sequence[str] | None = None) -> str:
    """Return a dataclass field with one of `choices`; without `others` all the rest are alternatives."""
    # The other choices are what somebody could have taken.
    rest = [each for each in choices if each != text] if others is None else others
    return assumed(text, str, why, others=rest, choices=choices)


def about(assumptions: Any) -> dict[str, Assumed]:
    """Return what is known of each assumption, by the name of the field; of a class or an instance."""
    return {each.name: each.metadata[_KEY] for each in fields(assumptions)}


def flag(name: str) -> str:
    """Return the option that sets a field; `global_` is ``--global``."""
    # `global` is a keyword of Python, hence the underscore.
    return "--" + name.strip("_").replace("_", "-")


def read(assumptions: type[A], texts: dict[str, str]) -> A:
    """Return assumptions from what was written for each field.

    Raises:
        InputError: a text cannot be read.
    """
    values = {}
    for name, text in texts.items():
        try:
            # Texts of the command line are read with the same parser as defaults.
            values[name] = about(assumptions)[name].parse(text.strip())
        except ValueError as error:
            raise InputError(f"{flag(name)}: {error}") from error
    return assumptions(**values)


def variations(assumptions: A) -> Iterator[tuple[str, str, A]]:
    """Return (field, other value as text, assumptions with it), one change at a time."""
    for name, known in about(assumptions).items():
        for text in known.others:
            value = known.parse(text)
            # Alternatives that equal the chosen value change nothing.
            if value != getattr(assumptions, name):
                yield name, text, replace(assumptions, **{name: value})  # type: ignore[type-var]
