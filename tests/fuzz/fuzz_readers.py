"""The readers that are fuzzed. To add one, add a row to `readers`."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import fuzz_mutations as mutate

from armillary import convert
from armillary.errors import ArmillaryError
from armillary.trace import (
    GraphBuilder,
    check,
    decode,
    encode,
    graph_from_json,
    graph_to_json,
    info,
    load_trace,
    nodes_of,
    read_graph,
)

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
LARGEST_SEED = 1 << 17


@dataclass(frozen=True)
class Reader:
    """What reads a kind of file."""

    name: str
    file: str
    """What the broken file is called."""
    seeds: Callable[[], Sequence[bytes]]
    mutations: Sequence[mutate.Mutation]
    read: Callable[[Path], object]


def readers() -> list[Reader]:
    """Return all readers there are, those of the front ends included."""
    rows = [
        Reader("et", "w.0.et", wire_seeds, mutate.FRAMES, whole_graph),
        Reader("et-twins", "w.0.et", wire_seeds, mutate.FRAMES, both_decoders),
        Reader("et-gzip", "w.0.et", wire_seeds, [*mutate.FRAMES, mutate.compressed], whole_graph),
        Reader("trace", "w.0.et", wire_seeds, mutate.FRAMES, lambda path: load_trace(path.with_name("w"))),
        Reader("json", "w.0.json", json_seeds, mutate.JSON, whole_graph),
    ]
    return rows + [front_end_row(name) for name in convert.names()]


FRONT_ENDS: dict[str, tuple[str, str, Sequence[mutate.Mutation], dict[str, Any]]] = {
    "text": ("w.txt", "astra1_text/**/*.txt", mutate.TEXT, {}),
    "flexflow": ("w.graph", "chakra_flexflow/*.graph", mutate.JSON, {}),
    "msccl": ("w.xml", "msccl/**/*.xml", mutate.TEXT, {"size": "1 MiB"}),
    "eg": ("w.0.eg", "eg_old/*.eg", mutate.FRAMES, {}),
    "hlo": ("w.hlo", "hlo/**/*", mutate.TEXT, {}),
    "pytorch": ("host_0.json", "torch_cpu/*/host_0.json.gz", mutate.JSON, {}),
}
"""By front end: name of the file, seeds under the reference traces, how to break them, options it must have."""


def front_end_row(name: str) -> Reader:
    """Return the row of a front end; one that is not listed gets small files of several kinds."""
    file, pattern, mutations, options = FRONT_ENDS.get(
        name, ("input", "", [*mutate.TEXT, *mutate.JSON, *mutate.FRAMES], {})
    )

    def read(path: Path) -> object:
        return convert.report(convert.front_end(name).convert([path], **options))

    return Reader(name, file, partial(reference_seeds, pattern), mutations, read)


def whole_graph(path: Path) -> None:
    """Read a graph and use all of it; what was accepted can be written and read again."""
    graph = read_graph(path)
    nodes = nodes_of(graph)
    info(graph)
    check(graph)
    assert nodes_of(decode(encode(graph))) == nodes or "nan" in repr(nodes), "written, it reads otherwise"
    assert len(nodes_of(graph_from_json(graph_to_json(graph)))) == len(nodes), "as JSON, it reads otherwise"


def both_decoders(path: Path) -> None:
    """Decode with the compiled and the interpreted kernel, which must agree."""
    data, outcomes = path.read_bytes(), []
    for mode in ("interpreted", "compiled"):
        try:
            outcomes.append(encode(decode(data, "w", mode)))
        except ArmillaryError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1], outcomes


@cache
def wire_seeds() -> list[bytes]:
    """Return graphs as protobuf: made ones, and the small reference traces."""
    builder = GraphBuilder()
    first = builder.compute("gemm", flops=1 << 40, bytes=1 << 20)
    gathered = builder.all_reduce("sum", 1 << 30, group="3", after=[first], ctrl_after=[first])
    builder.compute("lookup", duration_micros=17, cpu=True, after=[gathered])
    made = encode(builder.graph())
    return [
        made,
        b"",
        b"\0",
        *reference_seeds("{astra_examples,msccl,golden_mlcommons_1.0.0,stage_samples}/**/*.et*")[3:],
    ]


@cache
def json_seeds() -> list[bytes]:
    """Return the same graphs in the JSON layout, none of them long."""
    found = []
    for data in wire_seeds():
        try:
            document = json.loads(graph_to_json(decode(data)))
        except ArmillaryError:
            continue
        document["nodes"] = document["nodes"][:20]
        found.append(json.dumps(document).encode())
    return [*found, b"[]", b"{}"]


@cache
def reference_seeds(pattern: str) -> list[bytes]:
    """Return up to 40 small files that match, and three that are always there.

    What is compressed is unpacked, and JSON cut to a few entries of each list, for speed.
    """
    found = [b"", b"{}", b"1 2\n"]
    alternatives = [pattern]
    if pattern.startswith("{"):
        choices, _, rest = pattern[1:].partition("}")
        alternatives = [choice + rest for choice in choices.split(",")]
    for alternative in alternatives:
        files = sorted(TRACES.glob(alternative)) if alternative and TRACES.is_dir() else []
        for path in files[:: max(len(files) // 20, 1)][:20]:
            if path.is_file() and not path.name.endswith((".tar.gz", ".tgz")):
                data = path.read_bytes()
                data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
                found.append(shortened(data) if data[:1] in b"{[" and data else data[:LARGEST_SEED])
    return found


def shortened(data: bytes) -> bytes:
    """Return JSON with twelve entries of each list, from its start and its end."""

    def short(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: short(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [short(inner) for inner in (value if len(value) <= 12 else value[:8] + value[-4:])]
        return value

    return json.dumps(short(json.loads(data))).encode()
