"""`armillary demo`: a 512-NPU machine, an all-reduce with a known answer, and a training step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from armillary.base.errors import InputError
from armillary.cli import COMMANDS
from armillary.cli.command import Command, option
from armillary.cli.outputs import Outputs, working
from armillary.cli.values import OUTPUT_FOLDER

if TYPE_CHECKING:
    from armillary.trace import Graph

MACHINE = """\
profile: astra-sim       # bandwidth is then per link and direction
platform:
  network:               # innermost first; latency is per hop
    - {name: chiplet, topology: Ring, size: 2, bandwidth: 250 GiB/s, latency: 500 ns}
    - {name: package, topology: FullyConnected, size: 8, bandwidth: 200 GiB/s, latency: 500 ns}
    - {name: node, topology: Ring, size: 8, bandwidth: 100 GiB/s, latency: 500 ns}
    - {name: pod, topology: Switch, size: 4, bandwidth: 50 GiB/s, latency: 500 ns}
  npu: {peak: 312 TFLOP/s, memory: {bandwidth: 2039 GB/s}}
  compute: {roofline: true}
  collectives:
    all-reduce: [ring, direct, ring, halvingDoubling]
    optimization: localBWAware
    chunks: 64
    active_chunks: 1
"""
"""Four nested dimensions, 2 x 8 x 8 x 4 NPUs ("Conv-4D" in the literature)."""

NPUS = 2 * 8 * 8 * 4

ASTRA_SIM_TICKS = 4_856_448
"""What ASTRA-sim's congestion-unaware backend gives for the all-reduce on this machine."""


def all_reduce() -> Graph:
    """Return one all-reduce of 1 GiB."""
    from armillary.trace import GraphBuilder

    builder = GraphBuilder()
    builder.all_reduce("all-reduce", size="1 GiB")
    return builder.graph()


def training_step(layers: int = 8, hidden: int = 4096, tokens: int = 512) -> Graph:
    """Return a data-parallel step of a transformer in 16-bit numbers.

    The gradients of a layer are all-reduced while the layers below it still compute; the optimizer
    waits for all of them.
    """
    from armillary.trace import GraphBuilder

    # 12 h²: attention 4 h², a feed-forward layer of 4 h width 8 h².
    parameters = 12 * hidden * hidden
    # Two operations per weight and token, and the scores of attention.
    flops = 2 * parameters * tokens + 4 * tokens * tokens * hidden
    # Weights are read once; about 34 activations per token and hidden unit are moved, all of 2 bytes.
    moved = 2 * parameters + 2 * 34 * tokens * hidden
    builder = GraphBuilder()
    last: list[int] = []
    for layer in range(layers):
        last = [builder.compute(f"forward {layer}", flops=flops, bytes=moved, after=last)]
    gradients = []
    # Backwards: gradients of the last layer are ready first, and their all-reduce overlaps with the layers
    # below.
    for layer in reversed(range(layers)):
        last = [builder.compute(f"backward {layer}", flops=2 * flops, bytes=2 * moved, after=last)]
        gradients.append(builder.all_reduce(f"gradients {layer}", size=2 * parameters, after=last))
    weights = layers * parameters
    # Adam: about 12 operations and 16 bytes per parameter.
    builder.compute("optimizer", flops=12 * weights, bytes=16 * weights, after=[*last, *gradients])
    return builder.graph()


@click.command(
    cls=Command, help=COMMANDS["demo"], examples=("armillary demo", "armillary demo --out elsewhere")
)
@option(
    "-o",
    "--out",
    type=OUTPUT_FOLDER,
    default=Path("out/demo"),
    show_default=True,
    metavar="DIR",
    help="Folder for the files.",
)
def command(out: Path) -> None:
    """Write traces and studies, simulate them, and report; pictures where matplotlib is installed."""
    from armillary.base.files import make_folder, write_text
    from armillary.base.pictures import check_picture
    from armillary.trace import Trace, write_trace

    pictures, listed = True, "*.png                                 pictures of the breakdown"
    try:
        # Without matplotlib the demo runs all the same, and says so.
        check_picture(out / "step.png")
    except InputError as error:
        pictures, listed = False, f"no pictures: {error}"
    make_folder(out / "traces")
    for name, graph in (("all-reduce", all_reduce()), ("step", training_step())):
        with working(f"writing the traces of {name}"):
            write_trace(out / "traces" / name, Trace.replicate(graph, ranks=NPUS))
        # Paths in a study are relative to its file.
        write_text(out / f"{name}.yaml", f"workload: {{trace: traces/{name}}}\n{MACHINE}")

    _heading("1 GiB all-reduce over 512 NPUs")
    ticks = _run(out, "all-reduce", pictures)
    same = "the same" if ticks == ASTRA_SIM_TICKS else "not the same"
    click.echo(f"\nASTRA-sim gives {ASTRA_SIM_TICKS:,} cycles for this input: {same}.\n")
    _heading("One training step: 8 transformer layers, data-parallel on the same machine")
    _run(out, "step", pictures)
    click.echo(f"""
In {out}:
  all-reduce.yaml, step.yaml, traces/   what was simulated; try: armillary run {out / "step.yaml"}
  {listed}
  *.timeline.json.gz                    timelines, to be opened in https://ui.perfetto.dev
  *.json                                the same numbers for programs
  *.result                              whole results; try: armillary explain {out / "step.result"}""")


def _heading(text: str) -> None:
    click.echo(f"{text}\n{'=' * len(text)}")


def _run(out: Path, name: str, pictures: bool) -> int:
    """Simulate one study of the demo, report, write the files and return the finish tick."""
    import armillary
    from armillary.platform.files.native import load_study
    from armillary.workload import study_trace

    study = load_study(out / f"{name}.yaml")
    with working("simulating"):
        result = armillary.simulate(study_trace(study), study.platform, profile=study.profile)
    # quiet: the demo lists its files at the end.
    Outputs(
        json=out / f"{name}.json",
        timeline=out / f"{name}.timeline.json.gz",
        plot=out / f"{name}.png" if pictures else None,
        save=out / f"{name}.result",
    ).present(result, quiet=True)
    return result.total_ticks
