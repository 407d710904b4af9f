"""Loads: requests that are drawn, by a text like ``poisson:rate=4,requests=500,input=1024,output=256``, or logged.

Draws are those of NumPy's legacy generator, which never change: inputs first, then outputs, then gaps. So a closed loop
with the lengths of InferenceX (``input=819-1024,output=819-1024``, seed 0) has the requests of its client.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from armillary.base.counts import check_count
from armillary.base.document import is_there
from armillary.base.errors import InputError, nearest, one_of
from armillary.base.hints import show
from armillary.base.units import parse_time, whole
from armillary.serving.requests import MOST_LENGTH, MOST_NS, MOST_REQUESTS, Ints, Requests
from armillary.serving.sessions import turns

NS = 10**9
_COMMON = {"requests": "1000", "input": "", "output": "", "prefix": "0"}
KINDS: dict[str, dict[str, str]] = {
    "poisson": {"rate": "", **_COMMON},
    "gamma": {"rate": "", "cv": "", **_COMMON},
    "constant": {"rate": "", **_COMMON},
    "closed": {"clients": "", **_COMMON},
    "sessions": {
        "rate": "",
        "sessions": "100",
        "turns": "",
        "input": "",
        "output": "",
        "think": "",
        "prefix": "0",
    },
}
"""Kind -> its keys and their defaults; "": it must be given."""
EXAMPLE = "poisson:rate=4,requests=500,input=1024,output=256"
SESSIONS = "sessions:rate=0.5,sessions=100,turns=2-6,input=100-500,output=50-200,think=2s-10s"


@dataclass(frozen=True)
class _Spec:
    """A load that is described.

    Attributes:
        text: As the user wrote it.
        values: Key -> text.
    """

    text: str
    values: dict[str, str]

    def number(self, key: str, low: float, high: float) -> float:
        """Return a number from above `low` to `high`."""
        try:
            found = float(self.values[key])
        except ValueError:
            found = math.nan
        if not low < found <= high:
            raise self.error(key, f"a number above {low:g}, up to {high:g}")
        return found

    def count(self, key: str, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`."""
        found = whole(self.values[key])
        if found is None or not low <= found <= high:
            raise self.error(key, f"a whole number from {low:,} to {high:,}")
        return found

    def lengths(self, key: str) -> tuple[int, int]:
        """Return the ends of a range of tokens: ``1024``, or ``820-1024``."""
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", self.values[key])
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= low <= high <= MOST_LENGTH:
            raise self.error(key, f"tokens from 1 to {MOST_LENGTH:,}, or a range of them, e.g. 820-1024")
        return low, high

    def times(self, key: str) -> tuple[int, int]:
        """Return the ends of a range of times in ns: ``5s``, or ``500ms-5s``."""
        parts = self.values[key].split("-")
        try:
            low, high = (round(parse_time(each)) for each in (parts[0], parts[-1]))
        except (ValueError, OverflowError):
            low, high = -1, -1
        if len(parts) > 2 or not 0 <= low <= high <= MOST_NS:
            raise self.error(key, "a time, or a range of times, e.g. 2s-10s")
        return low, high

    def error(self, key: str, expected: str) -> InputError:
        return InputError(f"load {self.text}: {key}: got '{self.values[key]}', expected {expected}")


def load_requests(source: str | Path, seed: int = 0) -> Requests:
    """Return the requests of a load.

    Args:
        source: A text as above, or the file of a log (`armillary.serving.logs`).
        seed: Of what is drawn.

    Raises:
        InputError: it is neither, a value of it is wrong, or there are more requests than are allowed.
    """
    if not isinstance(source, str | Path):
        raise InputError(f"load: got {show(source)}, expected a text like {EXAMPLE}, or the file of a log")
    if not 0 <= seed < 2**32:
        raise InputError(f"seed: got {seed}, expected a whole number from 0 to 4,294,967,295")
    kind, colon, rest = str(source).partition(":")
    if colon and not is_there(source) and (kind in KINDS or "=" in rest):
        spec = _parsed(str(source), kind, rest)
        return _sessions(spec, seed) if kind == "sessions" else _drawn(spec, kind, seed)
    from armillary.serving.logs import read_log

    if not is_there(source) and not Path(source).suffix:
        raise InputError(f"load {source}: there is no such file, expected one, or a text like {EXAMPLE}")
    return read_log(Path(source))


def cut(requests: Requests, first: int | None = None, speed: float = 1.0) -> Requests:
    """Return the first requests, `speed` times as fast.

    Args:
        requests: The load.
        first: How many; None: all.
        speed: By which the time between requests is divided.

    Raises:
        InputError: there is none to keep, a speed is not above 0, or a closed loop should be faster.
    """
    if first is not None and first < 1:
        raise InputError(f"first: got {first}, expected a whole number from 1")
    if not 0 < speed < math.inf:
        raise InputError(f"speed: got {speed}, expected a number above 0")
    if speed != 1 and requests.clients:
        raise InputError(
            f"speed {speed:g}: clients of a closed loop send when they have their answer, expected 1"
        )
    if first is not None and first < len(requests):
        requests = requests.part(np.arange(first))
    if speed != 1 and requests.at_once:
        note = f"speed {speed:g} has no effect: all requests that follow no others come at once"
        return replace(requests, notes=(*requests.notes, note))
    arrival = requests.arrival
    if speed != 1:
        late = float(arrival.max()) / speed
        if late > MOST_NS:
            raise InputError(f"speed {speed:g}: the last request would come after {late / NS:.3g} s, expected at most "
                             f"{MOST_NS / NS:.3g} s")  # fmt: skip
        # Who follows others comes when they are done: nobody thinks faster.
        arrival = np.where(arrival < 0, -1, np.rint(arrival / speed)).astype(np.int64)
    return replace(requests, arrival=arrival)


def _parsed(text: str, kind: str, rest: str) -> _Spec:
    if kind not in KINDS:
        raise InputError(
            f"load {text}: no kind '{kind}'{nearest(kind, KINDS)}, expected {one_of(KINDS)}, or a file"
        )
    keys, values = KINDS[kind], {}
    example = SESSIONS if kind == "sessions" else EXAMPLE
    for part in filter(None, rest.split(",")):
        key, equals, value = (each.strip() for each in part.partition("="))
        if not equals or key not in keys:
            near = nearest(key, keys)
            raise InputError(f"load {text}: no key '{key}'{near}, expected {one_of(keys)}, as in {example}")
        if key in values:
            raise InputError(f"load {text}: {key} is given twice, expected once")
        values[key] = value
    for key, usual in keys.items():
        if key not in values and not usual:
            raise InputError(f"load {text}: missing key '{key}', expected {one_of(keys)}, as in {example}")
        values.setdefault(key, usual)
    return _Spec(text, values)


def _drawn(spec: _Spec, kind: str, seed: int) -> Requests:
    n = spec.count("requests", 1, 2**31)
    check_count(n, MOST_REQUESTS, f"load {spec.text}: requests", "fewer requests")
    random = np.random.RandomState(seed)
    prompt, output = (_lengths(random, spec.lengths(key), n) for key in ("input", "output"))
    prefix = spec.count("prefix", 0, MOST_LENGTH)
    if prefix > int(prompt.min()):
        raise spec.error("prefix", f"at most {int(prompt.min()):,}, the shortest input")
    clients = spec.count("clients", 1, n) if kind == "closed" else 0
    arrival = _arrivals(spec, kind, random, n) if not clients else np.where(np.arange(n) < clients, 0, -1)
    # The shared tokens are one block of that size.
    shared = ((0,),) * n if prefix else None
    return Requests(arrival.astype(np.int64), prompt, output, clients, shared, prefix, spec.text)


def _sessions(spec: _Spec, seed: int) -> Requests:
    """Return drawn sessions, which begin independently: turns first, then inputs, answers, thinking and gaps."""
    n = spec.count("sessions", 1, 2**31)
    least, most = spec.lengths("turns")
    check_count(n * most, MOST_REQUESTS, f"load {spec.text}: turns", "fewer sessions or turns")
    random = np.random.RandomState(seed)
    counts = _lengths(random, (least, most), n)
    total = int(counts.sum())
    inputs, outputs = (_lengths(random, spec.lengths(key), total) for key in ("input", "output"))
    prefix = spec.count("prefix", 0, MOST_LENGTH)
    if prefix > (shortest := int(inputs[np.cumsum(counts) - counts].min())):
        raise spec.error("prefix", f"at most {shortest:,}, the shortest input of a first turn")
    low, high = spec.times("think")
    if high * most > MOST_NS:
        raise spec.error("think", f"at most {MOST_NS / NS:.3g} s in all turns of a session")
    thinks = random.randint(low, high + 1, total).astype(np.int64)
    arrival, prompt, output, follows = turns(
        _arrivals(spec, "poisson", random, n), counts, inputs, outputs, thinks
    )
    if (longest := int((prompt + output).max())) > MOST_LENGTH:
        raise spec.error("input", f"sessions of at most {MOST_LENGTH:,} tokens, not {longest:,}")
    shared = tuple((0,) if each >= 0 else () for each in arrival) if prefix else None
    return Requests(arrival, prompt, output, 0, shared, prefix, spec.text, (), follows)


def _lengths(random: np.random.RandomState, ends: tuple[int, int], n: int) -> Ints:
    low, high = ends
    return random.randint(low, high + 1, n).astype(np.int64)


def _arrivals(spec: _Spec, kind: str, random: np.random.RandomState, n: int) -> Ints:
    gap = NS / spec.number("rate", 0, 1e9)
    gaps: dict[str, Callable[[], object]] = {
        "poisson": lambda: random.exponential(gap, n),
        "constant": lambda: np.full(n, gap),
        "gamma": lambda: _gamma(random, gap, spec.number("cv", 0, 100), n),
    }
    # The first comes at once.
    at = np.cumsum(np.asarray(gaps[kind](), np.float64)[: n - 1])
    if len(at) and at[-1] > MOST_NS:
        raise InputError(
            f"load {spec.text}: the last request would come after {at[-1] / NS:.3g} s, expected at most "
            f"{MOST_NS / NS:.3g} s"
        )
    return np.concatenate(([0], np.rint(at))).astype(np.int64)


def _gamma(random: np.random.RandomState, mean: float, cv: float, n: int) -> object:
    shape = 1 / cv**2
    return random.gamma(shape, mean / shape, n)
