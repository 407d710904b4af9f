# ruff: noqa: E501 - seeds are files
"""Readers of files that options and other files name: plans, groups, routes, loggers, the user's own configuration."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import click
import numpy as np

from armillary.base.programs import listed_programs
from armillary.cli.generate.plan_options import PlanOptions
from armillary.cli.trace.group_file import read_group_file
from armillary.lab.learned.corpus import read_corpus, write_corpus
from armillary.platform.files.topology import read_graph
from armillary.platform.topology.network import routing_of
from armillary.report.astra_log import read_logging

CONFIGURATION = "programs: [/opt/models/waves, /usr/bin/true]\n"
PLAN = "ranks: 8\nbatch: 16\nparallel: {tp: 2, pp: 2, dp: 2}\npipeline: {schedule: 1f1b}\ndata: {sharding: zero-1}\nsequence: 512\n"
GROUPS = {"1": [0, 1, 2], "2": [3, 7]}
GRAPH = "from,to,bandwidth,latency\nnpu0,s,50 GB/s,1 us\ns,npu0,50 GB/s,1 us\nnpu1,s,50 GB/s,1 us\ns,npu1,50 GB/s,1 us\n"
COUNTS = "layer,expert,count\n0,0,12\n0,7,3\n5,1,400\n"
TOKENS = "rank,experts,count\n0,0 5,2\n3,7,1\n"
ROUTES = "node,destination,next\nnpu0,npu1,s\ns,npu1,npu1\nnpu1,npu0,s\ns,npu0,npu0\n"
LOGGERS = """\
[[sink]]
name = "console"
type = "stdout_sink_mt"
[[sink]]
name = "file"
type = "rotating_file_sink_mt"
base_filename = "log/s.txt"
max_size = "1M"
max_files = 3
level = "info"
[[sink]]
name = "away"
type = "basic_file_sink_mt"
filename = "../away.txt"
truncate = true
[[logger]]
name = "statistics"
sinks = ["console", "file", "away"]
level = "trace"
"""
UNDER_LOAD = {"accelerator": {"op": {
    "matmul": {"tflops": 1000, "accurate_efficient_factor": {
        "b=1, m=4096, k=8192, n=1024, layout=NT, accumulate=True, out_dtype=fp32": 0.5}},
    "group_matmul": {"tflops": 1000, "accurate_efficient_factor": {
        "ng=8, M=100, N=512, K=256, dtype=bf16, out_dtype=bf16, main_grad_dtype=fp32, stage=bwd_grad_w, accumulate=True": 0.25}},
}}}  # fmt: skip
DRAWS = "count: 2\nchoices: {layers: [2, 3], hidden: [2048, 4096], pp: [1], microbatches: [2]}\n"


def configuration(path: Path) -> None:
    """Read the list of programs that the user allows."""
    folder = path.parent / "armillary"
    folder.mkdir(exist_ok=True)
    path.replace(folder / path.name)
    with mock.patch.dict(os.environ, {"XDG_CONFIG_HOME": str(path.parent)}):
        listed_programs()


def plan(path: Path) -> None:
    """Read the file of --plan; what it lacks, options may give."""
    with suppress(click.UsageError):
        PlanOptions({}, path, "training").plan()


def groups(path: Path) -> None:
    """Read the file of --comm-groups."""
    read_group_file(path, 8)


def routes(path: Path) -> None:
    """Read a table of routes, and follow it from everywhere."""
    graph = path.with_name("graph.csv")
    graph.write_text(GRAPH)
    routing_of("static", read_graph(graph), table=path).paths([0, 1], [1, 0])


def loggers(path: Path) -> None:
    """Read a configuration of loggers; nothing is written outside of the current folder."""
    here = Path.cwd().resolve()
    for sink in read_logging(path).sinks:
        assert sink.file is None or sink.file.resolve().is_relative_to(here)


@cache
def corpora() -> Sequence[bytes]:
    """Return a part of a corpus."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "draws.yaml").write_text(DRAWS)
        write_corpus(folder / "corpus", [], [folder / "draws.yaml"])
        return [min((folder / "corpus").glob("*.npz")).read_bytes()]


def corpus(path: Path) -> None:
    """Read a corpus of one part."""
    folder = path.parent / "corpus"
    folder.mkdir(exist_ok=True)
    path.replace(folder / path.name)
    read_corpus(folder)


@cache
def corpus_arrays() -> dict[str, Any]:
    """Return the arrays of that part."""
    with np.load(io.BytesIO(corpora()[0])) as found:
        return {name: found[name] for name in found.files}


def corpus_headers() -> Sequence[bytes]:
    """Return its header."""
    return [corpus_arrays()["header"].tobytes()]


def corpus_of_header(path: Path) -> None:
    """Read a corpus of one part with this header."""
    made = path.with_name("made.npz")
    np.savez(made, **{**corpus_arrays(), "header": np.frombuffer(path.read_bytes(), np.uint8)})
    corpus(made)
