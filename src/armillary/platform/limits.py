"""What the values of a machine may be: rules that study files and dataclasses share, so that both refuse the same.

A rule says in words what is wrong with a value. `check` asks the rules of all fields of a dataclass, as its
``__post_init__`` does; the layouts of study files (`platform.fields`) are made of the same rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from armillary.base.errors import InputError, nearest, one_of
from armillary.base.hints import KeyPath, key_text, show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from armillary.base.document import Document

Rule = Callable[[object], str]
"""Returns what is wrong with a value, e.g. "got 0, expected 1 or more"; "" for nothing."""

# ASTRA-sim keeps counts in a C int.
MOST_COUNT = 2**31 - 1
MOST_NS = 2.0**53
"""Largest time: 104 days; above it a float cannot tell one ns from the next."""
MOST_RATE = 1e40
"""Largest rate per s or ns: idealised machines use rates that are practically infinite."""
# Leaves a factor of two below int64 for what is added to it.
MOST_BYTES = 2**62
"""Largest size; products of sizes with small counts must still fit."""


class FieldError(InputError):
    """An invalid value; the message names the class and the field, or the file and the key.

    Attributes:
        place: The field, and what in it.
        problem: What is wrong.
    """

    def __init__(self, owner: str, place: KeyPath, problem: str) -> None:
        """Say "Dimension.latency: got -1, expected 0 or more"."""
        self.place, self.problem = place, problem
        super().__init__(f"{owner}.{key_text(place)}: {problem}" if place else f"{owner}: {problem}")


@dataclass(frozen=True)
class Number:
    """Numbers from `low` on (above it if `above`), to `high`; `whole` ones only; or 0 if `or_zero`."""

    low: float = 0
    high: float = MOST_RATE
    above: bool = False
    whole: bool = False
    most: str = ""
    """How people write `high`."""

    def __call__(self, value: object) -> str:
        """See `Rule`."""
        # NumPy scalars register as Integral and Real, so arrays may feed these fields.
        kind = Integral if self.whole else Real
        # bool is a subclass of int: without this, `latency=True` would be 1 ns.
        if isinstance(value, bool) or not isinstance(value, kind):
            return f"got {show(value)}, expected {'a whole number' if self.whole else 'a number'}"
        return self.out_of_range(value, value)  # type: ignore[arg-type]

    def out_of_range(self, value: float, given: object) -> str:
        """Return what is wrong with a number that was `given` so."""
        # Integers are always finite, and math.isfinite overflows on those above 1e308.
        if not isinstance(value, Integral) and not math.isfinite(value):
            return f"got {show(given)}, expected a finite number"
        if value < self.low or (self.above and value == self.low):
            return f"got {show(given)}, expected {self.least}"
        if value > self.high:
            most = f"at most {self.most}" if self.most else f"{self.high:.16g} or less"
            return f"got {show(given)}, expected {most}"
        return ""

    @property
    def least(self) -> str:
        """Return "more than 0" or "1 or more"."""
        return f"more than {self.low:g}" if self.above else f"{self.low:g} or more"


@dataclass(frozen=True)
class Choice:
    """One of some words."""

    words: Collection[str]

    def __call__(self, value: object) -> str:
        """See `Rule`."""
        if isinstance(value, str) and value in self.words:
            return ""
        return f"got {show(value)}, expected {one_of(self.words)}{nearest(str(value), self.words)}"


@dataclass(frozen=True)
class Kind:
    """Values of a type, which messages call `name`; None too if `none`."""

    type: type | tuple[type, ...]
    name: str
    none: bool = False

    def __call__(self, value: object) -> str:
        """See `Rule`."""
        if isinstance(value, self.type) or (self.none and value is None):
            return ""
        return f"got {show(value)}, expected {self.name}"


@dataclass(frozen=True)
class Maybe:
    """What another rule says, but for one value that stands for nothing: None, or 0."""

    rule: Rule
    nothing: object = None

    def __call__(self, value: object) -> str:
        """See `Rule`."""
        # type(), not isinstance(): False == 0, but a flag is no number.
        if value is self.nothing or (type(value) in (int, float) and value == self.nothing):
            return ""
        return self.rule(value)


COUNT = Number(1, MOST_COUNT, whole=True)
SIDE = Number(2, MOST_COUNT, whole=True)
TIME = Number(high=MOST_NS, most="2501 h")
WHOLE_TIME = Number(high=MOST_NS, most="2501 h", whole=True)
POSITIVE = RATE = Number(above=True)
SHARE = Number(0, 1, above=True, most="100 %")
SHARE_OR_NONE = Number(0, 1, most="100 %")
LONGER = Number(0, 10, most="1000 %")
"""A share by which something takes longer than alone; fits of training reach twice 400 %."""
BYTES = Number(high=MOST_BYTES, whole=True)
SEED = Number(high=2**63 - 1, whole=True)
FLAG = Kind(bool, "true or false")
TEXT = Kind(str, "text")


def check(owner: Any, **rules: Rule) -> None:
    """Apply the rule of each field of a dataclass.

    Raises:
        FieldError: a field is not what it may be.
    """
    for name, rule in rules.items():
        if problem := rule(getattr(owner, name)):
            raise refuse(owner, (name,), problem)


def check_table(owner: Any, name: str, key: Rule, value: Rule) -> None:
    """Apply rules to the keys and values of a field that is a mapping.

    Raises:
        FieldError: it is no mapping, or one of them is not what it may be.
    """
    table = getattr(owner, name)
    if not isinstance(table, Mapping):
        raise refuse(owner, (name,), f"got {show(table)}, expected a mapping of keys to values")
    if all_are(key, table.keys()) and all_are(value, table.values()):
        return
    for each, entry in table.items():
        if problem := key(each):
            raise refuse(owner, (name,), problem)
        if problem := value(entry):
            raise refuse(owner, (name, each), problem)


def all_are(rule: Rule, values: Collection[object]) -> bool:
    """Return whether a rule surely holds for many values, by their types and extremes.

    Samples make tables of 65,536 ranks by the hundred; one by one they take 0.1 s each.
    """
    # Types as they are: a bool is no number, and NumPy's are looked at one by one.
    kinds = set(map(type, values))
    if isinstance(rule, Kind):
        return all(issubclass(kind, rule.type) for kind in kinds)
    if not isinstance(rule, Number) or kinds not in ({int}, {float}) or (rule.whole and kinds != {int}):
        return False
    numbers: Collection[float] = values  # type: ignore[assignment]
    # Comparisons with NaN say nothing.
    if kinds == {float} and any(map(math.isnan, numbers)):
        return False
    return not any(rule.out_of_range(each, each) for each in (min(numbers), max(numbers)))


def refuse(owner: Any, place: KeyPath, problem: str) -> FieldError:
    """Return the error that names a field of a dataclass."""
    return FieldError(type(owner).__name__, place, problem)


@contextmanager
def placed(document: Document, path: KeyPath, keys: Mapping[str, KeyPath] | None = None) -> Iterator[None]:
    """Name the file, the line and the key of a value that a dataclass refuses.

    Args:
        document: Where the values are from.
        path: Where they stand.
        keys: Field -> its key below that, where it is called otherwise.

    Raises:
        InputError: instead of `FieldError`.
    """
    try:
        yield
    except FieldError as error:
        # `place` is empty where fields contradict each other: the error then names the mapping itself.
        first, *rest = error.place or ("",)
        # The dataclass says "size" where the file says "npus_count": `keys` translates the first step of the
        # place.
        at = (keys or {}).get(str(first), (first,) if first else ())
        raise document.error((*path, *at, *rest), error.problem) from None


def wrong_option(rules: Mapping[str, Rule], options: Mapping[str, Any]) -> tuple[KeyPath, str]:
    """Return which option of a mapping is unknown or wrong by the rule of its name, and what; () and "" for none."""
    # Options are checked in the order of the file, so that the first wrong line is reported.
    for name, value in options.items():
        if name not in rules:
            hint = nearest(str(name), rules) or (f"; expected {one_of(rules)}" if rules else "")
            return (name,), f"unknown key{hint}"
        if problem := rules[name](value):
            return (name,), problem
    return (), ""
