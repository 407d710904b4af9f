"""Ways to break a file: bytes, text, JSON and YAML values, and compressed files."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random
from typing import Any

Mutation = Callable[[bytes, Random], bytes]

LARGEST, USUAL = 1 << 18, 1 << 14
"""Bytes at which files are cut, one of 64 and the rest: small ones find as much, and more of them fit in a minute."""

ODD_BYTES = [
    b"",
    b"\0",
    b"\xff" * 10,
    b"\x80" * 10,
    b"\x80",
    b"\xff\xff\xff\xff\x0f",
    b"\xed\xa0\x80",
    b"\x1f\x8b",
    b"\n",
    b"\r\n",
    b"\xef\xbb\xbf",
]
ODD_WORDS = [
    *(
        "-1",
        "0",
        "1",
        "2",
        "1.5",
        "-0.0",
        "1e308",
        "1e999",
        "NaN",
        "Infinity",
        "nan",
        "inf",
        "2147483648",
        "4294967296",
    ),
    *(
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551616",
        "9" * 400,
        "9" * 5000,
        "0x10",
        "1_000",
    ),
    *(
        "",
        " ",
        "\t",
        "\n",
        "é",
        "漢",
        "\ud800",
        "\0",
        "null",
        "true",
        "[]",
        "{}",
        '"',
        "'",
        "\\",
        "<",
        ">",
        "&",
        "%s",
        "${x}",
        "../x",
    ),
    *("-9223372036854775809", "١٢", "1e5", "+3", "one"),
]
ODD_VALUES: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        7,
        1.5,
        -0.5,
        float("nan"),
        float("inf"),
        1e308,
        2**31,
        2**53,
        2**63 - 1,
        2**63,
        2**64,
    ),
    *(
        -(2**63) - 1,
        10**30,
        10**400,
        "",
        "x",
        "0",
        "-1",
        "1e3",
        "é",
        "\ud800",
        "\0",
        [],
        {},
        [None],
        [[]],
        [{}],
        {"": None},
        [0],
        ["x"],
    ),
    *([[1, 2], [3]], {"id": 1}, {"name": []}, [1] * 300, "x" * 3000),
]


def at(data: bytes, rng: Random) -> int:
    return rng.randrange(len(data) + 1)


def flip(data: bytes, rng: Random) -> bytes:
    if not data:
        return b"\0"
    where = rng.randrange(len(data))
    return data[:where] + bytes([data[where] ^ 1 << rng.randrange(8)]) + data[where + 1 :]


def put(data: bytes, rng: Random) -> bytes:
    where = at(data, rng)
    return (
        data[:where]
        + rng.choice([*ODD_BYTES, rng.randbytes(rng.randrange(1, 9))])
        + data[where + rng.choice([0, 0, 1, 4]) :]
    )


def drop(data: bytes, rng: Random) -> bytes:
    where = at(data, rng)
    return data[:where] + data[where + rng.choice([1, 1, 2, 8, 64, 1 << 20]) :]


def repeat(data: bytes, rng: Random) -> bytes:
    where, size = at(data, rng), rng.choice([1, 8, 64, 1024])
    return data[:where] + data[where : where + size] * rng.choice([2, 2, 3, 50]) + data[where + size :]


def move(data: bytes, rng: Random) -> bytes:
    low, middle, high = sorted(at(data, rng) for _ in range(3))
    return data[:low] + data[middle:high] + data[low:middle] + data[high:]


BYTES: list[Mutation] = [flip, put, drop, repeat, move]


def _lines(data: bytes, rng: Random) -> tuple[list[str], int]:
    lines = data.decode("utf-8", "surrogateescape").splitlines(keepends=True) or [""]
    return lines, rng.randrange(len(lines))


def _joined(lines: Sequence[str]) -> bytes:
    return "".join(lines).encode(
        "utf-8", "surrogatepass" if any("\ud800" in line for line in lines) else "surrogateescape"
    )


def word(data: bytes, rng: Random) -> bytes:
    """Replace a word: what stands between blanks, commas, quotes, brackets and the like."""
    lines, line = _lines(data, rng)
    words = list(re.finditer(r"[^\s,:;=\"'<>(){}\[\]]+", lines[line]))
    found = rng.choice(words) if words else None
    low, high = found.span() if found else (0, 0)
    other = rng.choice(ODD_WORDS if rng.random() < 0.8 or not words else [m[0] for m in words])
    lines[line] = lines[line][:low] + other + lines[line][high:]
    return _joined(lines)


def line_moved(data: bytes, rng: Random) -> bytes:
    lines, line = _lines(data, rng)
    taken = lines.pop(line)
    for _ in range(rng.choice([0, 1, 2])):
        lines.insert(rng.randrange(len(lines) + 1), taken)
    return _joined(lines)


TEXT: list[Mutation] = [word, word, word, line_moved]


def json_value(data: bytes, rng: Random) -> bytes:
    """Replace, remove, rename, repeat or swap a value somewhere in a JSON document."""
    try:
        root = [json.loads(data)]
    except (ValueError, RecursionError):
        return flip(data, rng)
    place: Any = root
    key: Any = 0
    while isinstance(place[key], (dict, list)) and place[key] and rng.random() < 0.85:
        place = place[key]
        key = rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))
    how = rng.randrange(6)
    if how <= 2 or place is root:
        place[key] = rng.choice(ODD_VALUES)
    elif how == 3:
        del place[key]
    elif isinstance(place, list):
        other = rng.randrange(len(place))
        place[key], place[other] = place[other], place[key]
        place.insert(rng.randrange(len(place) + 1), place[key])
    elif how == 4:
        other = rng.choice(["", "x", "id", "name", str(key) + "s", rng.choice(list(place))])
        place[other] = place.pop(key)
    else:
        place[key] = place[rng.choice(list(place))]
    return _dumped(root[0])


def _dumped(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except (RecursionError, ValueError):
        return b"[" * 100_000


DEPTHS = [50] * 30 + [2000] * 9 + [100_000]
"""The deepest ones take as long as a hundred others, and find what one of them finds."""


def nested(data: bytes, rng: Random) -> bytes:
    """Put deep brackets somewhere."""
    where, depth = at(data, rng), rng.choice(DEPTHS)
    return data[:where] + rng.choice([b"[", b'{"a":', b"(", b"<a>"]) * depth + data[where:]


JSON: list[Mutation] = [json_value] * 6 + [word, nested]


YAML_BITS = [
    b'&a [*a, *a]', b'*a', b'<<: *a', b'!!python/object:os.system', b'!!binary x', b'!!set {a}',
    b'? [a]: b', b'|\n  x\n', b'---\n', b'%YAML 9.9\n', b'!!timestamp 2001-12-14', b'0o17', b'1:30:00',
    b'~', b'.inf', b'.nan', b'{', b'- ', b'  ', b'\t', b'2024-01-01', b'yes', b'!!int 1e3',
    b'<<: [{a: 1}]', b'{1: 2, true: 3}', b'[]: 1', b'{}: 1',
]  # fmt: skip


def yaml_value(data: bytes, rng: Random) -> bytes:
    """Break a value as `json_value` does, and write all of it as JSON, which YAML is too."""
    found = _as_json(data)
    return rng.choice(BYTES)(data, rng) if found is None else json_value(found, rng)


@lru_cache(512)
def _as_json(data: bytes) -> bytes | None:
    """Return YAML as JSON, None if it is none; the same seeds are broken again and again."""
    import yaml

    # libyaml crashes far from there.
    if data.count(b"[") + data.count(b"{") > 1000:
        return None
    try:
        return json.dumps(yaml.load(data, getattr(yaml, "CSafeLoader", yaml.SafeLoader))).encode()
    # What the reader makes of it is another matter.
    except Exception:
        return None


def yaml_bit(data: bytes, rng: Random) -> bytes:
    """Put a piece of YAML where a value begins, or anywhere."""
    starts = [found.end() for found in re.finditer(rb": |- |\[|, ", data)]
    where = rng.choice(starts) if starts and rng.random() < 0.8 else at(data, rng)
    return data[:where] + rng.choice(YAML_BITS) + data[where + rng.choice([0, 0, 3]) :]


YAML: list[Mutation] = [yaml_value] * 4 + [yaml_bit, word, word, line_moved, nested]


def compressed(data: bytes, rng: Random) -> bytes:
    """Compress, and then often break what came out."""
    packed = gzip.compress(data, compresslevel=1, mtime=0)
    return rng.choice(BYTES)(packed, rng) if rng.random() < 0.7 else packed


def mutated(seeds: Sequence[bytes], mutations: Sequence[Mutation], rng: Random) -> bytes:
    """Return a seed, broken in one to six ways."""
    data = rng.choice(seeds)
    most = LARGEST if rng.randrange(64) == 0 else max(USUAL, 2 * len(data))
    if rng.random() < 0.05:
        other = rng.choice(seeds)
        data = data[: at(data, rng)] + other[at(other, rng) :]
    for _ in range(rng.choice([1, 1, 1, 2, 3, 6])):
        data = rng.choice(mutations if rng.random() < 0.75 else BYTES)(data, rng)[:most]
    return data[: at(data, rng)] if rng.random() < 0.1 else data
