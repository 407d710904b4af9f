"""Seeds from the reference traces and from the files of other tests."""

from __future__ import annotations

import gzip
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from armillary.base.errors import ArmillaryError
from armillary.convert.pytorch.link_files import link_files

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
TESTS = Path(__file__).resolve().parents[1]
LARGEST_SEED, SHORT = 1 << 17, 1 << 14
HOST, DEVICE = "torch_cpu/coll2/host_0.json.gz", "torch_cpu/coll2/device_0.json.gz"


@cache
def seeds(*patterns: str) -> list[bytes]:
    """Return three files that are always there, and up to 20 for each pattern.

    What is compressed is unpacked, and JSON cut to a few entries of each list, for speed.
    """
    found = [b"{}", b"", b"1 2\n"]
    for pattern in patterns:
        files = [
            path
            for root in (TRACES, TESTS)
            if pattern and root.is_dir()
            for path in sorted(root.glob(pattern))
        ]
        given = []
        for path in files[:: max(len(files) // 20, 1)][:20]:
            if path.is_file():
                data = unpacked(path)
                given.append(shortened(data) if data[:1] in (b"{", b"[") else data[:LARGEST_SEED])
        # Of the long ones the shortest: they reach the same code, and take ten times as long.
        given.sort(key=len)
        short = [data for data in given if len(data) <= SHORT]
        found += [*short, *given[len(short) : len(short) + 1]]
    return found


@cache
def whole(name: str) -> list[bytes]:
    """Return a file under the reference traces as it is."""
    return [unpacked(TRACES / name) if (TRACES / name).exists() else b"{}"]


@cache
def joined() -> list[bytes]:
    """Return the pair of `whole` files as one file, which `armillary trace link` writes."""
    with tempfile.TemporaryDirectory() as name:
        host, device, output = (Path(name) / file for file in ("host.json", "device.json", "joined.json"))
        host.write_bytes(whole(HOST)[0])
        device.write_bytes(whole(DEVICE)[0])
        try:
            link_files(host, device, output)
        except ArmillaryError:
            return [b"{}"]
        return [output.read_bytes()]


def unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def shortened(data: bytes) -> bytes:
    """Return JSON with twelve entries of each list, from its start and its end."""

    def short(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: short(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [short(inner) for inner in (value if len(value) <= 12 else value[:8] + value[-4:])]
        return value

    try:
        return json.dumps(short(json.loads(data))).encode()
    except ValueError:
        return data[:LARGEST_SEED]
