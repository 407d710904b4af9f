"""ASTRA-sim's command-line flags that say something about the platform."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from armillary.base.errors import InputError, nearest
from armillary.base.hints import show

_FLAGS = ("num-queues-per-dim", "rendezvous-protocol", "injection-scale", "comm-scale", "compute-scale")
_COLUMNS = ("units-count", "links-count", "link-bandwidth", "link-latency")
"""Flags of version 1.0 with a value for each dimension, which stand for those of its network file."""
_FLAGS_IGNORED = ("logging-configuration", "logging-folder")
# "" is the flag without a value.
_TRUTH = {"true": True, "t": True, "1": True, "": True, "false": False, "f": False, "0": False}


def read_flags(cli: Iterable[str], warnings: list[str]) -> dict[str, Any]:
    """Return the value of each flag that counts, defaults included.

    Args:
        cli: Flags, ``--name=value`` or as two words.
        warnings: Receives a line for each flag that has no effect.

    Raises:
        InputError: A flag is unknown or its value is out of range.
    """
    flags: dict[str, Any] = {"num-queues-per-dim": 1, "rendezvous-protocol": False, "injection-scale": 1.0}
    words = list(cli)
    while words:
        word = str(words.pop(0))
        if not word.startswith("--"):
            raise InputError(
                f"command line: got {show(word)}, expected a flag such as --num-queues-per-dim=2"
            )
        # "--name=value", or "--name value" if the next word is no flag.
        name, equals, value = word[2:].partition("=")
        if not equals and words and not str(words[0]).startswith("--"):
            value = str(words.pop(0))
        # Logging changes no result.
        if name in (*_FLAGS_IGNORED, *_COLUMNS):
            continue
        if name not in (*_FLAGS, "num-passes"):
            raise InputError(f"command line: unknown flag --{name}{nearest(name, _FLAGS)}")
        if name == "rendezvous-protocol":
            if value.lower() not in _TRUTH:
                raise InputError(f"command line: --{name}: got {show(value)}, expected true or false")
            flags[name] = _TRUTH[value.lower()]
        elif name in ("num-queues-per-dim", "num-passes"):
            # Nine digits at most, which always fit a C int.
            if not re.fullmatch(r"[0-9]{1,9}", value) or int(value) < 1:
                raise InputError(
                    f"command line: --{name}: got {show(value)}, expected a whole number, 1 or more"
                )
            flags[name] = int(value)
        else:
            flags[name] = _scale(name, value)
    # Read and checked, though without effect: a typo in the value is still an error.
    for name in ("comm-scale", "compute-scale"):
        if flags.get(name, 1.0) != 1.0:
            warnings.append(f"command line: --{name} has no effect, as in ASTRA-sim")
    if "num-passes" in flags:
        warnings.append("command line: --num-passes has no effect: a trace says how many steps it has")
    return flags


class TextFlags(NamedTuple):
    """What flags of version 1.0 make of a text workload: training steps, and factors of bytes and of times."""

    passes: int = 1
    comm_scale: float = 1.0
    compute_scale: float = 1.0


def read_text_flags(cli: Iterable[str]) -> tuple[TextFlags, list[str]]:
    """Return the flags that a text workload obeys, and the other flags, ``--name=value``.

    Raises:
        InputError: A value is out of range.
    """
    names = {f"--{name.replace('_', '-')}": name for name in ("num-passes", *TextFlags._fields[1:])}
    found, rest = TextFlags(), []
    for word in map(str, cli):
        name = word.partition("=")[0]
        if name not in names:
            rest.append(word)
            continue
        flags = read_flags([word], [])
        at = "passes" if name == "--num-passes" else names[name]
        found = found._replace(**{at: flags[name[2:]]})
    return found, rest


def read_columns(cli: Iterable[str]) -> dict[str, list[float]]:
    """Return the values of flags that override a network file of version 1.0: ``--units-count=4,2``.

    Raises:
        InputError: A value is no number.
    """
    found: dict[str, list[float]] = {}
    for word in map(str, cli):
        name, equals, value = word.removeprefix("--").partition("=")
        if name not in _COLUMNS or not equals:
            continue
        found[name] = [_number(name, text) for text in value.split(",")]
    return found


def _number(name: str, text: str) -> float:
    value = _scale(name, text)
    return int(value) if value == int(value) else value


def _scale(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        # NaN fails the comparison below, and the error is the same.
        value = math.nan
    if not 0 <= value <= 1e9:
        raise InputError(f"command line: --{name}: got {show(text)}, expected a number, 0 or more")
    return value
