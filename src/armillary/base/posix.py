"""What needs Linux or macOS, said in one line elsewhere.

Everything that simulates runs on Windows as well: what `run`, `train` and `trace` import takes neither ``fcntl`` nor
``fork``. Sweeps, searches and replays fork processes, lock files and end whole sessions of processes, which Windows
has not.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

from armillary.base.errors import InputError


def needs_posix(what: str) -> None:
    """Refuse `what` where processes cannot be forked or files not be locked.

    Raises:
        InputError: on Windows, for instance.
    """
    if not hasattr(os, "fork") or not hasattr(os, "killpg") or find_spec("fcntl") is None:
        raise InputError(
            f"{what}: needs Linux or macOS, which fork processes and lock files; on Windows, run it in WSL"
        )
