"""What the fuzzer found: each is read, or refused with one line, since."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

import fuzz_named
import fuzz_seeds
import fuzz_stores
import pytest
from fuzz_readers import Reader, readers

from armillary.base.errors import InputError
from armillary.base.units import whole
from armillary.explore.runner.store import Store
from armillary.trace import GraphBuilder, Trace, write_trace
from armillary.trace.communication import read_communication
from armillary.trace.trace import read_groups

READERS = {reader.name: reader for reader in readers()}
DIGITS = "7" * 5000
MPT = fuzz_seeds.MPT.replace(",2048,", ",4294967296,")
FINDS = {
    "libyaml overran the stack": ("model", "kind: decoder\nmlp: " + '{"a":' * 60_000),
    "and with lists": ("device", "a: " + "[" * 140_000),
    "a number of thousands of digits": ("gemm-table", fuzz_seeds.GEMMS.replace("4096", DIGITS)),
    "in a log": ("nccl-log", fuzz_seeds.NCCL_LOG.replace("67108864", DIGITS)),
    "in JSON": ("measured-json", f'[{{"case": {DIGITS}}}]'),
    "a cell of megabytes": ("gemm-table", "m,n,k,us\n" + "x" * 200_000),
    "a short row": ("prefills", fuzz_seeds.PREFILLS + "1,2\n"),
    "no system file": ("shares", "[1]"),
    "a model that is none": ("measured-csv", MPT),
    "an encoding that is none": ("edges-graphml", fuzz_seeds.GRAPHML.replace("utf-8", "null")),
    "measures of a store that are a list": ("store-rows", '{"measures": "[[\\"step_time\\", 1]]"}'),
    "measures that are no JSON": ("store-rows", '{"measures": "{"}'),
    "a value beyond a float": ("store-rows", '{"vals": "{\\"size\\": 1' + "0" * 400 + '}"}'),
    "objectives that are a number": ("store-rows", '{"document": "{\\"objectives\\": 1}"}'),
    "objectives that are lists": ("store-rows", '{"document": "{\\"objectives\\": [[1]]}"}'),
    "a status that is none": ("store-rows", '{"status": "fine"}'),
    "choices that change nothing": (
        "sweep",
        fuzz_seeds.SWEEP.replace("h: {platform.npu.memory.bandwidth: 1 TB/s}", "h: {}"),
    ),
    "brackets that may all begin a key": ("configuration", "programs: [" + "[" * 4000),
    "a level that is a list": ("loggers", fuzz_named.LOGGERS.replace('"info"', "[]")),
    "a name with a NUL": ("loggers", fuzz_named.LOGGERS.replace("../away", "\\u0000")),
    "a peak of nothing": ("kernels-under-load", json.dumps(fuzz_named.UNDER_LOAD).replace("1000", "0")),
    "keys that are no texts": ("evaluated", "workload: {trace: step}\n1.5: {}\n"),
    "keys that are bytes, and a date": (
        "evaluated",
        "workload: {trace: 2020-02-02, !!binary xnpu: 2}\nplatform: {}\n",
    ),
    "a size beyond an integer": ("validated-gemms", fuzz_seeds.LATENCIES.replace("512", "9" * 40)),
    "a cycle after the end of time": (
        "issue-log",
        fuzz_seeds.ISSUES.replace("cycle=200", "cycle=9223372036854775808"),
    ),
    "a number beyond a float": (
        "measured-json",
        json.dumps(fuzz_seeds.SIMUMAX).replace("1000.5", "1" + "0" * 400),
    ),
    "an empty row": ("prefills", fuzz_seeds.PREFILLS + "\n1\n"),
    "times that are no times": (
        "nccl-log",
        fuzz_seeds.NCCL_LOG.replace("   time   algbw", "   times  algbw"),
    ),
    "half a GPU": ("nccl-csv", fuzz_seeds.NCCL_CSV.replace("\n8,", "\n0.5,")),
    "a sequence without end": ("measured-csv", fuzz_seeds.MPT.replace(",2048,", f",{'9' * 200},")),
    "a shape of no numbers": ("captured", json.dumps(fuzz_seeds.CAPTURED).replace("[[[", '[[[{"a": 1}, ')),
    "a step without end": ("measured-log", fuzz_seeds.MAXTEXT.replace("1048576", "9" * 400)),
    "tokens without end": ("prefills", fuzz_seeds.PREFILLS.replace("x,1", "x,inf").replace(",1", ",inf")),
    "a rank that is a text": (
        "edges-graphml",
        fuzz_seeds.GRAPHML.replace(
            '<key id="b"', '<key id="m" for="node" attr.name="npu" attr.type="string"/><key id="b"'
        ).replace('<data key="n">1', '<data key="m">1'),
    ),
    "a key that is too long for YAML": ("astra-1-system", f"{'k' * 5000}: 1\n{fuzz_seeds.SYSTEM_1}"),
    "a range that no float holds": (
        "sweep",
        fuzz_seeds.SWEEP.replace("{from: 50 GB/s, to: 400 GB/s,", "{from: 1" + "0" * 400 + ", to: 2,"),
    ),
    "a quote that stays open": ("nccl-csv", fuzz_seeds.NCCL_CSV.replace("26,", '"26,')),
}


@pytest.mark.parametrize("find", FINDS)
def test_it_is_read_or_refused(find: str, tmp_path: Path) -> None:
    name, text = FINDS[find]
    reader: Reader = READERS[name]
    path = tmp_path / reader.file
    path.write_text(text)
    try:
        reader.read(path)
    except InputError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        # 48 s and over 400 s of processor time before.
        ("ns3-config", fuzz_seeds.NS3 + "on " * 300_000),
        ("goal", "num_ranks 1\nrank 0 {\n" + "/* " * 100_000 + "\n}\n"),
        ("stablehlo", "module {\n %0 = stablehlo.add %1, %2 : tensor<4xf32>" + " " * 300_000 + "x\n}\n"),
        ("stablehlo", "module {\n %0 = stablehlo.add %1, %2 : tensor<4xf32>" + " loc(" * 60_000 + "x)\n}\n"),
    ],
)
def test_a_long_line_does_not_take_the_square_of_its_length(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / READERS[name].file
    path.write_text(text)
    begun = time.process_time()
    with suppress(InputError):
        READERS[name].read(path)
    assert time.process_time() - begun < 10


def test_a_store_is_mended_beside_a_thousand_copies(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    content = bytearray(fuzz_stores.stored(fuzz_seeds.SWEEP)[0])
    # Of its last page: the free bytes that it claims to have.
    content[len(content) - 4096 + 7] = 9
    path.write_bytes(content)
    for number in range(1001):
        (tmp_path / f"store.db.damaged{number or ''}").touch()
    with Store(path) as kept:
        kept.rows()
    assert (tmp_path / "store.db.damaged1001").exists()


def test_a_group_of_thousands_of_digits_is_none(tmp_path: Path) -> None:
    builder = GraphBuilder()
    builder.all_reduce("sum", size="1 MiB", group=DIGITS)
    trace = Trace.replicate(builder.graph(), ranks=2)
    write_trace(tmp_path / "w", trace)
    found, findings = read_groups(trace)
    assert findings or found
    assert read_communication(trace, found)


@pytest.mark.parametrize(
    ("text", "number"), [("12", 12), ("", None), ("-1", None), ("²", None), ("9" * 19, None), ("1_0", None)]
)
def test_whole(text: str, number: int | None) -> None:
    assert whole(text) == number
