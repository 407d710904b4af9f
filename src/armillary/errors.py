"""The errors a user can meet; their hints are those of `armillary.hints`."""

from __future__ import annotations

from armillary.hints import nearest, one_of, shown

__all__ = ["ArmillaryError", "InputError", "StuckError", "nearest", "one_of", "shown"]


class ArmillaryError(Exception):
    """Base of every error shown to a user; ``exit_code`` is the process's."""

    exit_code = 1


class InputError(ArmillaryError):
    """Bad input: names the file, key or node, the value and what was expected."""

    exit_code = 2


class StuckError(ArmillaryError):
    """The simulation cannot finish: the message is a table of who waits for what."""

    exit_code = 3
