"""`armillary reproduce switch-buffer`: all-reduce over TCP, swept over the buffer of the global switch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from armillary.cli.outputs import show_table, working
from armillary.cli.reproduce import SUBCOMMANDS
from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.engine.transport.tcp import Algorithm as Control
    from armillary.study.reproduce.switch_buffer import Algorithm

T = TypeVar("T")
_HELP = f"""{SUBCOMMANDS["switch-buffer"]}

After the study of Hot Interconnects 2020 (ASTRA-sim with ns-3 and TCP/IP). Every NPU has a link to the switch of its
group and one to the global switch. The flat all-reduce is among all NPUs; the hierarchical one scatters in the group,
reduces across groups and gathers in the group. Packets are dropped at the global switch only. What the machine is
like is assumed; every number is an option.
"""


@click.command(help=_HELP)
@click.option("--npus", type=click.IntRange(2, 1024), default=32, show_default=True,
              help="NPUs; 32 run in seconds and still meet 24 to 1 at a port.")  # fmt: skip
@click.option("--group", type=click.IntRange(1), default=8, show_default=True,
              help="NPUs of a group: 8 as in HGX boards.")  # fmt: skip
@click.option("--size", default="4 MiB", show_default=True,
              help="Vector of each NPU: of the order of a bucket of gradients.")  # fmt: skip
@click.option("--local", default="100 GB/s", show_default=True,
              help="Link to the group's switch: some times the global one, as inside servers.")  # fmt: skip
@click.option("--global", "wide", default="100 Gb/s", show_default=True,
              help="Link to the global switch: Ethernet of 2020.")  # fmt: skip
@click.option("--local-latency", default="250 ns", show_default=True, help="Of a link to the group's switch.")
@click.option("--global-latency", default="1 us", show_default=True,
              help="Of a link to the global switch, with half a switch in it.")  # fmt: skip
@click.option("--buffers", default="16 KiB,64 KiB,256 KiB,1 MiB,4 MiB,16 MiB", show_default=True, metavar="SIZE,…",
              help="Of each port of the global switch: 256 KiB is shallow, MiBs are deep.")  # fmt: skip
@click.option("--algorithm", type=click.Choice(("direct", "ring")), default="direct", show_default=True,
              help="Of each phase: to all at once, or to neighbours only.")  # fmt: skip
@click.option("--congestion-control", "control", type=click.Choice(("newreno", "cubic", "dctcp")),
              default="newreno", show_default=True, help="NewReno was ns-3's default in 2020.")  # fmt: skip
@click.option("--min-rto", default="200 ms", show_default=True,
              help="Shortest timeout: 200 ms in Linux, 1 s in ns-3, some ms where it is tuned.")  # fmt: skip
@click.option("--initial-window", type=click.IntRange(1, 1000), default=10, show_default=True,
              help="Segments: RFC 6928.")  # fmt: skip
@click.option("--repeats", type=click.IntRange(1, 1000), default=3, show_default=True,
              help="All-reduces one after the other: only the first finds new connections.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True,
              help="Of the times (below 1 us) in which hosts answer.")  # fmt: skip
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE",
              help="Draw time over buffer (.png, .svg or .pdf).")  # fmt: skip
def command(
    npus: int,
    group: int,
    size: str,
    local: str,
    wide: str,
    local_latency: str,
    global_latency: str,
    buffers: str,
    algorithm: Algorithm,
    control: Control,
    min_rto: str,
    initial_window: int,
    repeats: int,
    seed: int,
    plot: Path | None,
) -> None:
    """Sweep, and print a table."""
    from armillary.engine.transport.tcp import Tcp
    from armillary.files import check_folder
    from armillary.report.picture import check_picture
    from armillary.study.reproduce import switch_buffer as study
    from armillary.units import format_bytes, parse_bandwidth, parse_bytes, parse_time

    if plot:
        check_folder("--plot", plot)
        check_picture(plot)
    machine = study.Machine(
        npus, group,
        _read("--local", local, parse_bandwidth), _read("--global", wide, parse_bandwidth),
        _read("--local-latency", local_latency, parse_time), _read("--global-latency", global_latency, parse_time),
    )  # fmt: skip
    rto = _read("--min-rto", min_rto, parse_time) / 1e6
    tcp = Tcp(algorithm=control, min_rto=rto, initial_window=initial_window, seed=seed)
    rooms = sorted({_read("--buffers", text, parse_bytes) for text in buffers.split(",")})
    vector = _read("--size", size, parse_bytes)
    with working(f"simulating {2 * len(rooms)} cases"):
        points = study.sweep(machine, tcp, vector, rooms, algorithm=algorithm, repeats=repeats)
    title = f"{format_bytes(vector)} all-reduce, {algorithm}, {npus} NPUs in groups of {group}, TCP {control}"
    click.echo(title + "\n")
    show_table(study.table(points))
    click.echo()
    for line in study.findings(points):
        click.echo(f"- {line}")
    if plot:
        study.picture(points, plot, title)
        click.echo(f"wrote {plot}", err=True)


def _read(option: str, text: str, parse: Callable[[object], T]) -> T:
    try:
        return parse(text.strip())
    except ValueError as error:
        raise InputError(f"{option}: {error}") from error
