"""Sessions: requests that come when others are done, as an agent's or a user's next turn does.

A line of our log may have these keys:

| key | what it is |
|---|---|
| ``id`` | a name of the request, text or a whole number, for those that follow it |
| ``after`` | the name of a request of an earlier line, or a list of them; in place of ``arrival_s`` |
| ``delay_s`` | from the last token of all of these until it comes: a user thinks, a tool runs; 0 if it is not given |
| ``reused_tokens`` | of the first of these, how many tokens of prompt and answer it begins with; 0 if it is not given |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from armillary.base.errors import InputError, nearest
from armillary.base.hints import show
from armillary.serving.requests import MOST_NS, Follows, Ints

KEYS = ("delay_s", "reused_tokens")
"""Of a request that follows others."""


class Links:
    """What the lines of a log say about who follows whom.

    Attributes:
        former: (lines) Lines, from 0, that each follows; empty: it comes at its own time.
    """

    def __init__(self) -> None:
        self.former: list[tuple[int, ...]] = []
        self._names: dict[str | int, int] = {}
        self._delays: list[int] = []
        self._reused: list[int] = []
        self._whole: list[int] = []

    def read(self, where: str, row: Mapping[str, Any], prompt: int, output: int) -> bool:
        """Take the next line, and return whether it follows others.

        Raises:
            InputError: a key is wrong; names the line.
        """
        former = self._after(where, row)
        if not former:
            for key in KEYS:
                if key in row:
                    raise InputError(f"{where}: {key}: got {show(row[key])}, expected it with after only")
        reused = row.get("reused_tokens", 0)
        if former:
            if row.get("arrival_s") is not None:
                raise InputError(
                    f"{where}: arrival_s: got {show(row['arrival_s'])}, expected none with after: the request comes "
                    "delay_s after those that it follows"
                )
            most = min(prompt, self._whole[former[0]])
            if type(reused) is not int or not 0 <= reused <= most:
                raise InputError(
                    f"{where}: reused_tokens: got {show(reused)}, expected tokens from 0 to {most:,}: of this prompt, "
                    "and of prompt and answer of the first that it follows"
                )
            if reused and row.get("hash_ids"):
                raise InputError(
                    f"{where}: hash_ids: expected none with reused_tokens, which say how the prompt begins"
                )
        if (name := row.get("id")) is not None:
            if type(name) not in (str, int):
                raise InputError(f"{where}: id: got {show(name)}, expected text or a whole number")
            if name in self._names:
                raise InputError(f"{where}: id: got {show(name)}, expected a name that no earlier line has")
            self._names[name] = len(self.former)
        self.former.append(former)
        self._delays.append(0)
        self._reused.append(reused)
        self._whole.append(prompt + output)
        return bool(former)

    def _after(self, where: str, row: Mapping[str, Any]) -> tuple[int, ...]:
        value = row.get("after")
        if value is None:
            return ()
        names = value if isinstance(value, list) else [value]
        if not names:
            raise InputError(f"{where}: after: got [], expected the id of an earlier line, or several")
        for name in names:
            if type(name) not in (str, int) or name not in self._names:
                near = (
                    nearest(name, [each for each in self._names if isinstance(each, str)])
                    if type(name) is str
                    else ""
                )
                raise InputError(
                    f"{where}: after: got {show(name)}, expected the id of an earlier line{near}"
                )
        return tuple(dict.fromkeys(self._names[name] for name in names))

    def follow(self, where: str, times: Sequence[int], delay: int) -> int:
        """Return ns at which the last line could come at the earliest: if answers took no time.

        Args:
            where: The line.
            times: Of the lines before it, in ns.
            delay: ns.

        Raises:
            InputError: that is too long.
        """
        self._delays[-1] = delay
        at = max(times[each] for each in self.former[-1]) + delay
        if at > 64 * MOST_NS:
            raise InputError(f"{where}: delay_s: the request would come after {at / 1e9:.3g} s, expected at most "
                             f"{MOST_NS / 1e9:.3g} s")  # fmt: skip
        return at

    def ordered(self, order: Sequence[int]) -> Follows | None:
        """Return who follows whom when the lines stand in this order; None: nobody follows."""
        if not any(self.former):
            return None
        place = {at: number for number, at in enumerate(order)}
        former = [[place[each] for each in self.former[at]] for at in order]
        return Follows(
            np.cumsum([0, *map(len, former)]).astype(np.int64),
            np.array([each for own in former for each in own], np.int64),
            np.array([self._delays[at] for at in order], np.int64),
            np.array([self._reused[at] for at in order], np.int64),
        )


def turns(
    starts: Ints, counts: Ints, inputs: Ints, outputs: Ints, thinks: Ints
) -> tuple[Ints, Ints, Ints, Follows]:
    """Return arrivals (-1: it follows), prompts and answers of all turns, and who follows whom.

    A prompt has all of the session before it, and its own input. Requests are in the order in which they could come if
    answers took no time.

    Args:
        starts: (sessions) ns.
        counts: (sessions) Turns.
        inputs: (turns of all sessions) Tokens that a turn adds.
        outputs: (turns) Tokens.
        thinks: (turns) ns from the answer before until it comes; of a first turn none counts.
    """
    n, first = len(inputs), np.cumsum(counts) - counts
    session = np.repeat(np.arange(len(counts)), counts)
    whole = np.cumsum(inputs + outputs)
    prompts = whole - outputs - (whole - inputs - outputs)[first][session]
    opens = np.zeros(n, bool)
    opens[first] = True
    delays = np.where(opens, 0, thinks)
    waited = np.cumsum(delays)
    earliest = starts[session] + waited - waited[first][session]
    order = np.argsort(earliest, kind="stable")
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    later = order[~opens[order]]
    begin = np.concatenate(([0], np.cumsum(~opens[order]))).astype(np.int64)
    reused = np.where(opens, 0, prompts - inputs)
    follows = Follows(begin, place[later - 1], delays[order], reused[order])
    return np.where(opens, earliest, -1)[order], prompts[order], outputs[order], follows
