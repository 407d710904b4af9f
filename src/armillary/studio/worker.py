"""The process that simulates for a desk: it answers one question after the other, until its pipe is closed."""

from __future__ import annotations

import json
import signal
import tempfile
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from armillary.base.errors import ArmillaryError
from armillary.base.json_text import parse_json

BUG = 1
"""Exit code of an error that is none of the user's."""


def kinds() -> Mapping[str, Callable[[Mapping[str, Any], Callable[[dict[str, Any]], None]], dict[str, Any]]]:
    """Return what can be asked -> what answers it."""
    # Late: the process says that it is there before it has loaded the simulator.
    from armillary.studio import answers, catalogue, changes, drawn, dropped, search, views

    return {
        "catalogue": catalogue.catalogue,
        "headline": answers.headline,
        "train": answers.train,
        "topology": drawn.picture,
        "trace": dropped.about,
        "run": dropped.run,
        "timeline": views.timeline,
        "memory": views.memory,
        "network": views.network,
        "plan": search.plan,
        "what-if": changes.what_if,
    }


def serve(pipe: Connection, folder: str) -> None:
    """Answer what comes by a pipe: (kind, question) as JSON; what goes back is ``told``, ``answer`` or ``refused``.

    Args:
        pipe: Of the server.
        folder: For temporary files, which the server removes.
    """
    tempfile.tempdir = folder
    # Ctrl-C is for the server, which then closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def send(message: dict[str, Any]) -> None:
        pipe.send_bytes(text_of(message))

    try:
        while True:
            kind, question = parse_json(pipe.recv_bytes(), "question")
            try:
                reply: dict[str, Any] = {"answer": kinds()[kind](question, lambda told: send({"told": told}))}
            except ArmillaryError as error:
                reply = {"refused": str(error), "exit_code": error.exit_code}
            except MemoryError:
                reply = {"refused": "not enough memory for this question", "exit_code": 4}
            except Exception as error:  # a bug must cost one answer, not the studio
                traceback.print_exc()
                reply = {"refused": f"a fault of Armillary: {type(error).__name__}", "exit_code": BUG}
            send(reply)
    except (EOFError, OSError):
        return


def text_of(value: Any) -> bytes:
    """Return JSON; what is not known (NaN) or has no end is null, which JSON has words for."""
    return json.dumps(_finite(value), separators=(",", ":"), allow_nan=False).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return value
