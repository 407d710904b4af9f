"""Features that need Linux or macOS, with a one-line error elsewhere.

Everything that simulates also runs on Windows: the imports of `run`, `train` and `trace` use neither ``fcntl`` nor
``fork``. Sweeps, searches and replays fork processes, lock files and end whole sessions of processes, which Windows
does not support.
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
