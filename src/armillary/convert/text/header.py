"""The first line of a text workload: its parallelism kind and options."""

from __future__ import annotations

import re

from armillary.base.errors import nearest, one_of
from armillary.convert.text.kinds import DLRM, SCOPES, Word

NUMBERS = (
    "model_parallel_NPU_group",
    "ep",
    "pp",
    "vpp",
    "ga",
    "all_gpus",
    "pp_comm",
    "DLRM_LAST_BOTTOM_LAYER",
)
LISTS = ("checkpoints", "checkpoint_initiates")

Options = dict[str, list[Word]]
"""Name of an option -> the numbers after it."""


def read_kind(word: Word, what: str) -> str:
    """Return the parallelism kind that `word` is.

    Raises:
        InputError: it is no kind.
    """
    kind = word.text.upper()
    if kind not in SCOPES:
        word.reject(what, f"{one_of(SCOPES)}{nearest(kind, SCOPES)}")
    return kind


def read_options(kind: str, line: list[Word]) -> tuple[Options, list[str]]:
    """Return the options after the kind, and the unknown names, which are left out of them.

    A name may end in a colon or not. HYBRID_DLRM is followed by a number without a name.

    Raises:
        InputError: a number without a name, a name that comes twice, or not as many numbers as it needs.
    """
    known = {name.lower(): name for name in (*NUMBERS, *LISTS)}
    # "ep:4", "ep: 4" and "ep 4" all occur; columns are kept for messages.
    words = [
        word._replace(text=match[0], column=word.column + match.start())
        for word in line[1:]
        for match in re.finditer("[^:]+", word.text)
    ]
    options: Options = {}
    places: dict[str, Word] = {}
    name = ""
    if kind in DLRM and words and words[0].number is not None:
        name = "DLRM_LAST_BOTTOM_LAYER"
        options[name], places[name] = [], line[0]
    for word in words:
        if word.number is None:
            # An unknown name takes the numbers after it along, so that they are not counted to the one before.
            name = known.get(word.text.lower(), word.text)
            if name in options:
                word.reject("an option", "each once")
            options[name], places[name] = [], word
        elif name:
            options[name].append(word)
        else:
            word.reject("an option", f"a name, such as {NUMBERS[0]}, before the number")
    for name, values in options.items():
        _check(name, places[name], [value.number or 0 for value in values])
    unknown = [name for name in options if name not in known.values()]
    return {name: values for name, values in options.items() if name not in unknown}, unknown


def _check(name: str, place: Word, values: list[int]) -> None:
    if name in LISTS:
        # The first number is the count of the others.
        if not values or len(values) != values[0] + 1:
            place.reject("an option", f"the number of layers and as many layers after it, found {values}")
    elif name in NUMBERS and (len(values) != 1 or values[0] < 0):
        place.reject("an option", f"one number from 0 after it, found {values}")
