"""The readers that are fuzzed. To add one, add a row to `readers`."""

from __future__ import annotations

import importlib
import io
import json
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import fuzz_files
import fuzz_mutations as mutate
import numpy as np
from fuzz_front_ends import (
    GOAL,
    TRIOSIM,
    goal_binary,
    mscclpp_seeds,
    nccl_lines,
    nccl_seeds,
    nsight_rows,
    nsight_seeds,
    rocprof_seeds,
    xplane_seeds,
)
from fuzz_messages import FRAMES
from fuzz_recorded import DEVICE, HOST, TESTS, joined, seeds, whole
from fuzz_sent import sent
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import convert
from armillary.base.errors import ArmillaryError
from armillary.convert.pytorch.device import read_device
from armillary.convert.pytorch.host import read_host
from armillary.convert.pytorch.link_files import link_files
from armillary.lab.learned.archive import checksum
from armillary.lab.learned.corpus import read_corpus, write_corpus
from armillary.lab.learned.model_file import load_model_file, save_model
from armillary.lab.learned.sample import Sampler
from armillary.lab.learned.train import train
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


@dataclass(frozen=True)
class Reader:
    """What reads a kind of file."""

    name: str
    file: str
    """What the broken file is called."""
    seeds: Callable[[], Sequence[bytes]]
    mutations: Sequence[mutate.Mutation]
    read: Callable[[Path], object]
    slow: bool = False
    """A case may take long, and is not asked for an error message: programs of the engines."""


def readers() -> list[Reader]:
    """Return all readers there are, those of the front ends included."""
    rows = [
        Reader("et", "w.0.et", wire_seeds, FRAMES, whole_graph),
        Reader("et-twins", "w.0.et", wire_seeds, FRAMES, both_decoders),
        Reader("et-gzip", "w.0.et", wire_seeds, [*FRAMES, mutate.compressed], whole_graph),
        Reader("sent", "w.0.et", wire_seeds, [*FRAMES, mutate.compressed], partial(sent, chakra=True)),
        Reader("trace", "w.0.et", wire_seeds, FRAMES, lambda path: load_trace(path.with_name("w"))),
        Reader("json", "w.0.json", json_seeds, mutate.JSON, whole_graph),
        Reader("learned-model", "w.json", model_headers, mutate.JSON, model_of_header),
        Reader("learned-archive", "w.npz", model_files, mutate.BYTES, load_model_file),
    ]
    rows += [
        Reader("nccl-text", "rank0.log", nccl_lines, mutate.TEXT, partial(converted, "nccl")),
        Reader("goal-binary", "x.bin", goal_binary, mutate.BYTES, partial(converted, "goal")),
        Reader("nsight-rows", "rows.json", nsight_rows, mutate.JSON, nsight_of_rows),
        Reader("triosim-tensors", "tensor.csv", lambda: [TENSORS], mutate.TEXT, triosim_tensors),
    ]
    rows += pytorch_rows() + [front_end_row(name) for name in convert.names()]
    return rows + [Reader(*row) for row in fuzz_files.rows()] + engines()


PROGRAM_NODES = 7


def engines() -> list[Reader]:
    """Return the engines: bytes draw a program of `tests/engine`, which runs as machine code and, checked, interpreted.

    Both have the same ticks. Programs are small: of 7 nodes a crowd one takes 15 to 30 ms, half of it to lower it, and
    of 30 nodes up to ten times that, for the same lines.
    """
    sys.path.insert(0, str(TESTS))
    checked = importlib.import_module("engine.test_checked")

    def row(name: str, models: Mapping[str, Any], astra: bool) -> Reader:
        @settings(deadline=None, database=None)
        @given(st.data())
        def program(data: st.DataObject) -> None:
            checked.agree(models[name], *checked.draw(data, PROGRAM_NODES, astra), "compiled", "interpreted")

        def run(path: Path) -> None:
            program.hypothesis.fuzz_one_input(path.read_bytes())  # type: ignore[attr-defined]

        title = f"engine-{name.replace(' ', '-')}"
        return Reader(
            title,
            "program",
            lambda: [Random(i).randbytes(2000) for i in range(8)],
            mutate.BYTES,
            run,
            slow=True,
        )

    return [row(name, models, astra) for models, astra in ((checked.PHYSICAL, False), (checked.ASTRA_SIM, True))
            for name in models]  # fmt: skip


def pytorch_rows() -> list[Reader]:
    """Return the parts of the front end for PyTorch: each file alone, a pair of which one is broken, a joined one."""
    hosts = partial(seeds, "param/**/*et.json.gz", "torch_cpu/*/host_0.json.gz", "hta/**/*et.json.gz")
    devices = partial(seeds, "hta/**/*.json.gz", "torch_cpu/*/device_0.json.gz")
    return [
        Reader("pytorch-host", "host_0.json", hosts, mutate.JSON, read_host),
        Reader("sent-pytorch", "device_0.json", devices, mutate.JSON, partial(sent, chakra=False)),
        Reader("pytorch-device", "device_0.json", devices, mutate.JSON, read_device),
        Reader("pytorch-pair-host", "host_0.json", partial(whole, HOST), mutate.JSON, read_pair),
        Reader("pytorch-pair-device", "device_0.json", partial(whole, DEVICE), mutate.JSON, read_pair),
        Reader("link", "host_0.json", partial(whole, HOST), mutate.JSON, linked),
        Reader("pytorch-joined", "joined_0.json", joined, mutate.JSON, partial(converted, "pytorch")),
    ]


@cache
def model_files() -> list[bytes]:
    """Return the file of a model of a few small generated traces."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "plan.yaml").write_text(
            "count: 6\nchoices: {layers: [2, 4], hidden: [2048, 4096], pp: [1, 2], microbatches: [2, 3]}\n"
        )
        write_corpus(folder / "corpus", [], [folder / "plan.yaml"])
        save_model(train(read_corpus(folder / "corpus")), folder / "model.npz")
        return [(folder / "model.npz").read_bytes()]


@cache
def model_arrays() -> dict[str, Any]:
    """Return the arrays of that file."""
    with np.load(io.BytesIO(model_files()[0])) as found:
        return {name: found[name] for name in found.files}


def model_headers() -> list[bytes]:
    """Return the header of that file."""
    return [model_arrays()["header"].tobytes()]


def model_of_header(path: Path) -> None:
    """Read a model with this header and a checksum that fits, and make a trace with it."""
    arrays = {**model_arrays(), "header": np.frombuffer(path.read_bytes(), np.uint8)}
    arrays["checksum"] = np.frombuffer(checksum(arrays).encode(), np.uint8)
    made = path.with_name("w.npz")
    np.savez(made, **arrays)
    sampler = Sampler(load_model_file(made))
    sampler.sample({"layers": 4, "hidden": 3072, "pp": 2, "ranks": 8, "batch": 12})


TENSORS = b"""Index,TensorID,TensorShape,TensorNumElement,TensorEachByte,TensorType,TensorStorgeid,gpuid
0,1,[3; 4],12,2,input,0,0
1,2,[6],6,2,weight,1,0
"""


def triosim_tensors(path: Path) -> None:
    """Convert sound operators with broken tensors."""
    beside = path.with_name("trace.csv")
    beside.write_bytes(TRIOSIM)
    convert.report(convert.front_end("triosim").convert([beside, path]))


def nsight_of_rows(path: Path) -> None:
    """Convert a file of broken rows; what SQLite itself takes, in columns without types."""
    try:
        document = json.loads(path.read_bytes())
        rows, texts = document["rows"], document["texts"]
        tables = {str(table): [dict(row) for row in found] for table, found in rows.items()}
        words = [(str(number), str(text)) for text, number in texts.items()]
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return
    file = path.with_name("rows.sqlite")
    file.unlink(missing_ok=True)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        with suppress(UnicodeEncodeError):
            connection.executemany("INSERT INTO StringIds VALUES (?, ?)", words)
        for table, found in tables.items():
            columns = list(dict.fromkeys(str(key) for row in found for key in row))
            if not columns:
                continue
            try:
                named = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
                quoted = table.replace('"', '""')
                connection.execute(f'CREATE TABLE "{quoted}" ({named})')
                marks = ", ".join("?" * len(columns))
                values = [[row.get(name) for name in columns] for row in found]
                connection.executemany(f'INSERT INTO "{quoted}" VALUES ({marks})', values)
            except (sqlite3.Error, OverflowError, UnicodeEncodeError):
                continue
        connection.commit()
    converted("nsight", file)


FRONT_ENDS: dict[str, tuple[str, str, Sequence[mutate.Mutation], dict[str, Any]]] = {
    "text": ("w.txt", "astra1_text/**/*.txt", mutate.TEXT, {"npus": 8}),
    "flexflow": ("w.graph", "chakra_flexflow/*.graph", mutate.JSON, {}),
    "mscclpp": ("w.json", "", mutate.JSON, {"size": "1 MiB"}),
    "msccl": ("w.xml", "msccl/**/*.xml", mutate.TEXT, {"size": "1 MiB"}),
    "nccl": ("rank0.json", "", mutate.JSON, {}),
    "nsight": ("a.sqlite", "", mutate.BYTES, {}),
    "rocprof": ("a.json", "", mutate.JSON, {}),
    "xplane": ("a.xplane.pb", "", mutate.BYTES, {}),
    "triosim": ("trace.csv", "", mutate.TEXT, {}),
    "goal": ("w.goal", "", mutate.TEXT, {}),
    "eg": ("w.0.eg", "eg_old/*.eg", FRAMES, {}),
    "hlo": ("w.hlo", "convert/hlo/**/*.hlo", mutate.TEXT, {}),
    "stablehlo": ("w.mlir", "convert/stablehlo/*.mlir", mutate.TEXT, {}),
    "pytorch": ("host_0.json", "torch_cpu/*/host_0.json.gz", mutate.JSON, {}),
}
"""By front end: name of the file, seeds (reference traces or tests), how to break them, options it must have."""


def front_end_row(name: str) -> Reader:
    """Return the row of a front end; one that is not listed gets small files of several kinds."""
    unlisted = ("input", "", [*mutate.TEXT, *mutate.JSON, *FRAMES], {})
    file, pattern, mutations, options = FRONT_ENDS.get(name, unlisted)
    own = {
        "mscclpp": mscclpp_seeds, "nccl": nccl_seeds, "triosim": lambda: [TRIOSIM], "goal": lambda: [GOAL],
        "nsight": nsight_seeds, "rocprof": rocprof_seeds, "xplane": xplane_seeds,
    }  # fmt: skip
    found = own.get(name) or partial(seeds, pattern)
    return Reader(name, file, found, mutations, partial(converted, name, **options))


def converted(name: str, path: Path, **options: Any) -> None:
    """Convert one file, and count what came of it."""
    convert.report(convert.front_end(name).convert([path], **options))


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


def linked(path: Path) -> None:
    """Join a broken host trace with a device trace."""
    device = path.with_name("device_0.json")
    device.write_bytes(whole(DEVICE)[0])
    link_files(path, device, path.with_name("joined.json"))


def read_pair(path: Path) -> None:
    """Convert a host trace and a device trace, of which the one at `path` is broken."""
    other, data = ("device_0.json", DEVICE) if path.name == "host_0.json" else ("host_0.json", HOST)
    path.with_name(other).write_bytes(whole(data)[0])
    converted("pytorch", path.parent)


@cache
def wire_seeds() -> list[bytes]:
    """Return graphs as protobuf: made ones, and the small reference traces."""
    builder = GraphBuilder()
    first = builder.compute("gemm", flops=1 << 40, bytes=1 << 20)
    gathered = builder.all_reduce("sum", 1 << 30, group="3", after=[first], ctrl_after=[first])
    builder.compute("lookup", duration_micros=17, cpu=True, after=[gathered])
    builder.checkpoint("step", 1 << 30, path="x", after=[gathered])
    folders = ("astra_examples", "msccl", "golden_mlcommons_1.0.0", "stage_samples")
    return [encode(builder.graph()), b"\0", *seeds(*(f"{folder}/**/*.et*" for folder in folders))]


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
