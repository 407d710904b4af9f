"""The errors that a user can see; their hints come from `armillary.base.hints`.

A user's mistake is one line that names the file, the key or node, the value, what was expected and the nearest valid
choice; the exit code is 2. A simulation that cannot finish prints a table of who waits for whom; the exit code is 3.
Work that needs more memory than available states how much; the exit code is 4. An unknown key is an error, because a
misspelt key that is ignored becomes a wrong number later.
"""

from __future__ import annotations

from armillary.base.hints import nearest, one_line, one_of

__all__ = ["ArmillaryError", "ConsentError", "InputError", "ShortageError", "StuckError", "nearest", "one_of"]


class ArmillaryError(Exception):
    """Base of every error shown to a user; ``exit_code`` is the process's."""

    exit_code = 1


class InputError(ArmillaryError):
    """Bad input: names the file, key or node, the value and what was expected, on one line."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class ConsentError(ArmillaryError):
    """A file wants to start a program without permission. It is not an input error, because the file may be correct."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class StuckError(ArmillaryError):
    """The simulation cannot finish: the message is a table of who waits for what."""

    exit_code = 3


class ShortageError(ArmillaryError, MemoryError):
    """There is not enough memory: the message states the purpose, the amount needed and what to change, on one line."""

    exit_code = 4

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))
