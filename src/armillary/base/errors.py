"""The errors a user can meet; their hints are those of `armillary.base.hints`."""

from __future__ import annotations

from armillary.base.hints import nearest, one_line, one_of

__all__ = ["ArmillaryError", "InputError", "StuckError", "nearest", "one_of"]


class ArmillaryError(Exception):
    """Base of every error shown to a user; ``exit_code`` is the process's."""

    exit_code = 1


class InputError(ArmillaryError):
    """Bad input: names the file, key or node, the value and what was expected, on one line."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class StuckError(ArmillaryError):
    """The simulation cannot finish: the message is a table of who waits for what."""

    exit_code = 3
