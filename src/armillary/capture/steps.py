"""Steps that repeat: where the first rank does the same in the step that is recorded as in the one before, others stop.

A rank takes as long for each step, and those that follow the first one are ended one step earlier. Some run all steps,
too, and say whether the first one was right; if not, all are run again, whole.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from armillary.base.files import write_text
from armillary.capture.log import renumbered
from armillary.capture.objects import ENDED, WAITING, number_in
from armillary.capture.recorder import Recorder

REPEATS = "repeats_"
"""Prefix of the file in which a rank says whether its last two steps were the same: ``1`` or ``0``."""
WAIT_SECONDS = 0.2
"""Between two looks: a stage waits for all that the first one does after it."""
NOTE = "the last step was not run: the first rank did the same in it as in the one before"


class _Counts(NamedTuple):
    """What a program has counted since its start, at the end of a step."""

    assumed: Counter[str]
    places: int
    notes: int
    full: int


class Steps:
    """Compares the last two steps of a rank, or asks another one that does."""

    def __init__(self, recorder: Recorder, mail: Path | None, follows: int = -1) -> None:
        """Begin.

        Args:
            recorder: Of the rank.
            mail: Folder of messages between the ranks of a run; None: there is none.
            follows: Rank that is asked; -1: none is.
        """
        self._recorder, self._mail, self._follows = recorder, mail, follows
        self._counts = [self._now()]

    def ended(self) -> None:
        """Note what was counted until the end of a step."""
        self._counts.append(self._now())

    def repeats(self, last: dict[str, Any]) -> bool:
        """Return whether the next step does what the last one did, which then stands for it.

        It waits for whom it asks.
        """
        log, mail = self._recorder.log, self._mail
        if mail is None or self._follows < 0:
            return False
        said, waiting = mail / f"{REPEATS}{self._follows}", mail / f"{WAITING}{log.rank}"
        while not said.exists():
            # Whoever has ended says nothing any more, and who waits for this rank cannot.
            if (mail / f"{ENDED}{self._follows}").exists() or self._is_waited_for(mail):
                break
            if not waiting.exists():
                write_text(waiting, str(self._follows))
            time.sleep(WAIT_SECONDS)
        waiting.unlink(missing_ok=True)
        if number_in(said) != 1:
            return False
        reserved = self._recorder.memory.reserved_again()
        if reserved is None:
            return False
        last["reserved_bytes"] = reserved
        log.note(NOTE)
        # What is counted over all steps, as if it had run.
        before, now = self._counts[-2:]
        self._recorder.values.assumed.update(now.assumed - before.assumed)
        return True

    def compare(self, last: dict[str, Any] | None) -> None:
        """Say whether the recorded step, which is complete, did the same as the one before, which is `last`."""
        if self._mail is None or last is None or len(self._counts) < 3:
            return
        log = self._recorder.log
        before, then, now = self._counts[-3:]
        same = (
            now.assumed - then.assumed == then.assumed - before.assumed
            and now[1:] == then[1:]
            and self._recorder.memory.full == then.full
            and all(
                getattr(log, name) == (renumbered(value) if name == "rows" else value)
                for name, value in last.items()
                if name != "reserved_bytes"
            )
        )
        write_text(self._mail / f"{REPEATS}{log.rank}", str(int(same)))

    def _now(self) -> _Counts:
        recorder = self._recorder
        log = recorder.log
        return _Counts(
            Counter(recorder.values.assumed), len(log.places), len(log.notes), recorder.memory.full
        )

    def _is_waited_for(self, mail: Path) -> bool:
        return any(number_in(path) == self._recorder.log.rank for path in mail.glob(f"{WAITING}*"))


def differs(mail: Path, rank: int) -> bool:
    """Return whether a rank has said that its last two steps were not the same."""
    said = mail / f"{REPEATS}{rank}"
    return number_in(said) == 0
