"""Logs of requests: Armillary's, Mooncake's and vLLM's as LLMServingSim keeps it (JSON lines), Azure's, BurstGPT's.

| keys or columns of the first line | arrival | shared prefixes |
|---|---|---|
| ``arrival_s``, ``input_tokens``, ``output_tokens`` (ours) | s | ``hash_ids``, if there |
| ``timestamp``, ``input_length``, ``output_length`` (Mooncake) | ms | ``hash_ids``: one for 512 tokens |
| ``arrival_time``, ``input_toks``, ``output_toks`` (vLLM) | s | |
| ``TIMESTAMP``, ``ContextTokens``, ``GeneratedTokens`` (Azure) | date and time | |
| ``Timestamp``, ``Request tokens``, ``Response tokens`` (BurstGPT) | s | |

In ours a request may follow others in place of having a time (`armillary.serving.sessions`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from armillary.base.counts import check_count
from armillary.base.csv_text import CsvRows
from armillary.base.errors import InputError, nearest
from armillary.base.hints import show
from armillary.base.json_text import parse_json
from armillary.base.packing import read_unpacked
from armillary.base.reading import MOST_TEXT, decoded
from armillary.base.units import format_count
from armillary.serving.requests import MOST_LENGTH, MOST_NS, MOST_REQUESTS, Requests
from armillary.serving.sessions import KEYS, Links

HASHED = 512
"""Tokens that one of Mooncake's ``hash_ids`` stands for."""
_OURS = ("arrival_s", "input_tokens", "output_tokens", "hash_ids", "id", "after", *KEYS)
_DATE = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d{1,9})?(?:Z|\+00:00)?")


@dataclass(frozen=True)
class _Format:
    """The keys of a log.

    Attributes:
        name: Whose it is.
        arrival: Key of the time.
        prompt: Key of the tokens of the prompt.
        output: Key of those of the answer.
        scale: ns of its unit; 0: date and time.
        failed: Whether requests without an answer are failed ones, which are left out.
    """

    name: str
    arrival: str
    prompt: str
    output: str
    scale: int
    failed: bool = False

    @property
    def keys(self) -> tuple[str, str, str]:
        """The three keys."""
        return self.arrival, self.prompt, self.output


FORMATS = (
    _Format("Armillary", "arrival_s", "input_tokens", "output_tokens", 10**9),
    _Format("Mooncake", "timestamp", "input_length", "output_length", 10**6),
    _Format("vLLM", "arrival_time", "input_toks", "output_toks", 10**9),
    _Format("Azure", "TIMESTAMP", "ContextTokens", "GeneratedTokens", 0, failed=True),
    _Format("BurstGPT", "Timestamp", "Request tokens", "Response tokens", 10**9, failed=True),
)


def read_log(path: Path) -> Requests:
    """Return the requests of a log in the order in which they came; the first comes at 0.

    Raises:
        InputError: it cannot be read, is of no known format, has no request, or a value is wrong; names the line.
    """
    try:
        text = decoded(read_unpacked(path, MOST_TEXT), path)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: cannot be read as text ({error}), expected a log of requests") from None
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror or error}), expected a log of requests"
        ) from None
    check_count(text.count("\n"), MOST_REQUESTS, f"{path}: requests", "a shorter log")
    rows = _json_rows(path, text) if text.lstrip()[:1] == "{" else _csv_rows(path, text)
    form: _Format | None = None
    times: list[int] = []
    prompts: list[int] = []
    outputs: list[int] = []
    hashes: list[tuple[int, ...]] = []
    failed, shares, links, keys = 0, False, Links(), dict[str, None]()
    for line, row in rows:
        keys.update(dict.fromkeys(row))
        form = form or _format_of(path, line, row)
        where = f"{path}:{line}"
        output = _tokens(where, form.output, row, 0 if form.failed else 1)
        prompt = _tokens(where, form.prompt, row, 0 if form.failed else 1)
        if form.failed and not (output and prompt):
            failed += 1
            continue
        follows = form is FORMATS[0] and links.read(where, row, prompt, output)
        if follows:
            delay = _scaled(where, "delay_s", row.get("delay_s", 0), form.scale)
            times.append(links.follow(where, times, delay))
        else:
            times.append(_time(where, form, row))
        prompts.append(prompt)
        outputs.append(output)
        hashes.append(_hashes(where, row, prompt))
        shares = shares or bool(hashes[-1])
    if form is None or not times:
        raise InputError(f"{path}: there is no request, expected a line for each")
    # Who follows others stands behind them, at the earliest time at which it could come.
    order = sorted(range(len(times)), key=times.__getitem__)
    if (span := times[order[-1]] - times[order[0]]) > MOST_NS:
        raise InputError(f"{path}: from the first request to the last are {span / 1e9:.3g} s, expected at most "
                         f"{MOST_NS / 1e9:.3g} s")  # fmt: skip
    follows_of = links.ordered(order)
    arrival = np.array(
        [-1 if links.former[at] else times[at] - times[order[0]] for at in order] if follows_of
        else [times[at] - times[order[0]] for at in order], np.int64,
    )  # fmt: skip
    notes = (
        [f"{format_count(failed)} requests of {path.name} without prompt or answer are left out"]
        if failed
        else []
    )
    return Requests(
        arrival, np.array([prompts[at] for at in order], np.int64), np.array([outputs[at] for at in order], np.int64),
        0, tuple(hashes[at] for at in order) if shares else None, HASHED if shares else 0,
        f"{path.name}, a log of {form.name}'s format", (*notes, *_unread(path, form, keys)), follows_of,
    )  # fmt: skip


def _json_rows(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line, each in enumerate(text.split("\n"), 1):
        if not each.strip():
            continue
        try:
            row = parse_json(each, f"{path}:{line}", object_pairs_hook=partial(_once, f"{path}:{line}"))
        except ValueError as error:
            raise InputError(
                f"{path}:{line}: is not JSON ({error}), expected an object in each line"
            ) from None
        if not isinstance(row, dict):
            raise InputError(f"{path}:{line}: got {show(row)}, expected an object of a request")
        yield line, row


def _once(where: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        key = next(key for key in counts if counts[key] > 1)
        raise InputError(f"{where}: {show(key)} is given twice, expected once")
    return found


def _csv_rows(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    rows = CsvRows(path, text.splitlines())
    header = [each.strip() for each in next(rows, [])]
    _once(f"{path}:{rows.line}", [(each, None) for each in header if each])
    for row in rows.named(header):
        yield rows.line, row


def _format_of(path: Path, line: int, row: Mapping[str, Any]) -> _Format:
    for form in FORMATS:
        if all(key in row for key in form.keys):
            return form
    # The one with most keys in common says what is missing.
    near = max(FORMATS, key=lambda form: sum(key in row for key in form.keys))
    missing = next(key for key in near.keys if key not in row)
    known = "; ".join(f"{form.name}: {', '.join(form.keys)}" for form in FORMATS)
    hint = nearest(missing, list(row))
    raise InputError(f"{path}:{line}: no '{missing}'{hint}, expected the keys of a log ({known})")


def _unread(path: Path, form: _Format, keys: Iterable[str]) -> list[str]:
    """Return which keys have no effect, a sentence: of our format all others, of another those of sessions."""
    if form is FORMATS[0]:
        found = [key for key in keys if key not in _OURS]
        shown = [f"{show(key)}{nearest(key, _OURS)}" for key in found[:4]]
        why = ""
    else:
        found = [key for key in keys if key in ("after", *KEYS)]
        shown = [show(key) for key in found[:4]]
        why = f", as only a log of {FORMATS[0].name}'s format says who follows whom"
    more = f" and {len(found) - 4} others" if len(found) > 4 else ""
    return [f"of {path.name} these keys have no effect{why}: {', '.join(shown)}{more}"] if found else []


def _tokens(where: str, key: str, row: Mapping[str, Any], least: int) -> int:
    value = row.get(key)
    if isinstance(value, str) and re.fullmatch(r"\s*\d{1,9}(\.0*)?\s*", value):
        value = int(float(value))
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST_LENGTH:
        raise InputError(
            f"{where}: {key}: got {show(value)}, expected tokens from {least} to {MOST_LENGTH:,}"
        )
    return value


def _time(where: str, form: _Format, row: Mapping[str, Any]) -> int:
    """Return ns: of a date since 1970, of a number since its zero."""
    value = row.get(form.arrival)
    if not form.scale:
        match = _DATE.fullmatch(value.strip()) if isinstance(value, str) else None
        try:
            # Seven digits of a second are more than datetime keeps.
            day = datetime.fromisoformat(f"{match[1]}T{match[2]}+00:00") if match else None
        except ValueError:
            day = None
        if match is None or day is None:
            raise InputError(
                f"{where}: {form.arrival}: got {show(value)}, expected date and time as 2023-11-16 18:17:03.9799600"
            )
        return int(day.timestamp()) * 10**9 + int((match[3] or ".0")[1:].ljust(9, "0"))
    return _scaled(where, form.arrival, value, form.scale)


def _scaled(where: str, key: str, value: Any, scale: int) -> int:
    """Return ns of a number of s or ms."""
    try:
        number = math.nan if isinstance(value, bool) or value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    # Seconds since 1970 are 2e18 ns: whole and part apart, as a double has 200 ns there. All within MOST_NS of zero.
    if not 0 <= number * scale <= 32 * MOST_NS:
        unit = {10**9: "s", 10**6: "ms"}[scale]
        most = f", up to {32 * MOST_NS / scale:.3g}" if number * scale > 0 else ""
        raise InputError(f"{where}: {key}: got {show(value)}, expected {unit} from 0{most}")
    return int(number) * scale + round((number - int(number)) * scale)


def _hashes(where: str, row: Mapping[str, Any], prompt: int) -> tuple[int, ...]:
    value = row.get("hash_ids")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(type(each) is int and abs(each) < 2**63 for each in value):
        raise InputError(f"{where}: hash_ids: got {show(value)}, expected a list of whole numbers")
    if len(value) > -(-prompt // HASHED):
        raise InputError(
            f"{where}: hash_ids: got {len(value)}, expected at most {-(-prompt // HASHED)}: one for {HASHED} tokens of "
            f"the prompt"
        )
    return tuple(value)
