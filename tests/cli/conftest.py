"""A folder of small, valid inputs, and a way to call the command line in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from armillary.cli import main
from armillary.cli.command import DefaultGroup
from armillary.trace import GraphBuilder, Trace, write_trace

NETWORK = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50.0], "latency": [500.0]}
SYSTEM = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 4,
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"],
    "all-to-all-implementation": ["ring"],
    "collective-optimization": "localBWAware",
    "local-mem-bw": 1600,
}
STUDY = """\
workload: {trace: step}
platform:
  network:
    - {name: node, topology: Ring, size: 4, bandwidth: 50 GB/s, latency: 500 ns}
  npu: {memory: {bandwidth: 2 TB/s}}
  collectives: {chunks: 4}
profile: astra-sim
"""


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder: network.yml, system.json, memory.json, study.yaml and step.<rank>.et."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    Path("network.yml").write_text(json.dumps(NETWORK))
    Path("system.json").write_text(json.dumps(SYSTEM))
    Path("memory.json").write_text('{"memory-type": "NO_MEMORY_EXPANSION"}')
    Path("groups.json").write_text("{}")
    Path("study.yaml").write_text(STUDY)
    builder = GraphBuilder()
    work = builder.compute("work", duration_micros=20)
    builder.all_reduce("sum", size="1 MiB", after=[work])
    write_trace("step", Trace.replicate(builder.graph(), ranks=4))
    return tmp_path


@pytest.fixture
def call() -> Callable[[str], Result]:
    """Return a function that runs ``armillary <words>`` in this process."""
    return lambda words: CliRunner().invoke(main, words.split())


def _commands(
    command: click.Command, name: str = "", parent: click.Context | None = None
) -> Iterator[tuple[str, click.Command]]:
    # As the command line makes it: a command keeps the names of --help that it is first asked for.
    context = click.Context(command, parent, name, help_option_names=["-h", "--help"])
    if isinstance(command, DefaultGroup):
        yield context.command_path, command.default
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            inner = command.get_command(context, each)
            assert inner is not None
            yield from _commands(inner, each, context)
    else:
        yield context.command_path, command


@pytest.fixture(scope="session")
def commands() -> list[tuple[str, click.Command]]:
    """Return all commands with their names, e.g. ``trace stats``."""
    return [(name.strip(), command) for name, command in _commands(main)]
