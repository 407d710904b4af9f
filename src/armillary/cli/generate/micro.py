"""`armillary generate micro`: sweeps of collectives and messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from armillary.base.units import whole
from armillary.cli.command import Command, option
from armillary.cli.generate import SUBCOMMANDS
from armillary.cli.options import (
    astra_sim_options,
    csv_option,
    json_option,
    machine_option,
    plot_option,
    profile_option,
    ranks_option,
)
from armillary.cli.outputs import say, show_table, working
from armillary.cli.values import NEW_FOLDER

if TYPE_CHECKING:
    from armillary.platform.model import Platform
    from armillary.workload.micro import Case

_T = TypeVar("_T")
_DEFAULT = "all-reduce,all-gather,reduce-scatter,all-to-all"
_HELP = f"""{SUBCOMMANDS["micro"]}

The machine is --machine, or --system and --network. Sizes are those of nccl-tests: of the vector, of all parts of a
collective that divides its data, or of one message. Groups consist of consecutive ranks, and all groups work at the
same time. With --out only what --overlap needs is simulated, and --ranks can replace the machine.
"""


_TESTS = "What is tested"


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        "armillary generate micro --machine hgx-h100 --plot bandwidth.png",
        'armillary generate micro --ranks 16 --collective all-reduce --max "1 MiB" --out cases',
    ),
)
@option("--collective", "collectives", metavar="NAME,…", heading=_TESTS,
        help=f"Chakra's collectives, or all.  [default: {_DEFAULT}, or none with --pattern]")  # fmt: skip
@option(
    "--pattern",
    "patterns",
    metavar="NAME,…",
    heading=_TESTS,
    help="Message patterns, or all: ping-pong, unidirectional, bidirectional, ring, ring-bidirectional, bisection, "
    "bisection-bidirectional, all-pairs, incast, outcast.",
)
@option(
    "--min",
    "smallest",
    default="8 B",
    show_default=True,
    metavar="SIZE",
    heading=_TESTS,
    help="Smallest size.",
)
@option(
    "--max",
    "largest",
    default="1 GiB",
    show_default=True,
    metavar="SIZE",
    heading=_TESTS,
    help="Largest size.",
)
@option(
    "--factor",
    type=click.IntRange(2),
    default=2,
    show_default=True,
    heading=_TESTS,
    help="Ratio of each size to the previous one.",
)
@option(
    "--groups",
    metavar="N,…",
    heading=_TESTS,
    help="Ranks per group, or all (every divisor).  [default: all ranks]",
)
@option("--dtype", default="float32", show_default=True, heading=_TESTS, help="Data type of an element.")
@option("--overlap", metavar="RATIO,…", heading=_TESTS,
        help="Also run each collective beside a compute node that takes RATIO times as long.")  # fmt: skip
@machine_option("Machine to simulate; the workload of a study is ignored.")
@astra_sim_options
@ranks_option("Number of NPUs, instead of a machine, with --out.", least=2, heading="Machine")
@profile_option("Simulation semantics.  [default: physical; astra-sim with --system]")
@option(
    "-o", "--out", type=NEW_FOLDER, metavar="DIR", help="Write traces and a manifest instead of simulating."
)
@plot_option("bus bandwidth over size")
@json_option("Write the results as JSON.")
@csv_option
def command(
    collectives: str | None,
    patterns: str | None,
    smallest: str,
    largest: str,
    factor: int,
    groups: str | None,
    dtype: str,
    overlap: str | None,
    machine: str | None,
    system: Path | None,
    network: Path | None,
    ranks: int | None,
    profile: str | None,
    out: Path | None,
    plot: Path | None,
    json_file: Path | None,
    csv: Path | None,
) -> None:
    """Sweep, and write or simulate."""
    outputs = {"plot": plot, "json": json_file, "csv": csv}
    _check_outputs(outputs, out)
    # --out alone needs no machine: a number of ranks is enough.
    platform = _platform(machine, system, network, ranks, alone=out is not None and overlap is None)
    profile = profile or ("astra-sim" if system else "physical")
    ratios = _numbers("--overlap", overlap, _ratio) if overlap is not None else []
    count = platform.npus if platform else ranks
    assert count is not None  # _platform asks for one of them
    # All collectives of the profile, or any where no machine says.
    cases = _cases(_tests(collectives, patterns, profile if platform else ""), count, groups, dtype,
                   _sizes(smallest, largest, factor))  # fmt: skip
    results = []
    # Written cases with --overlap need the times of collectives first.
    if platform and (out is None or ratios):
        from armillary.evidence.micro import measure, measure_beside

        with working(f"simulating {len(cases)} cases"):
            results = measure(cases, platform, profile=profile)
            results += measure_beside(results, ratios, platform, profile=profile)
    if out:
        from armillary.workload.micro import write_cases

        # dict.fromkeys: cases alone and beside compute, each once.
        every = dict.fromkeys([*cases, *(result.case for result in results)])
        with working(f"writing {len(every)} traces"):
            manifest = write_cases(out, every)
        say(f"wrote {len(every)} traces of {count} ranks, listed in {manifest}", err=True)
        return
    assert platform is not None
    from armillary.evidence import micro

    for text in micro.warnings(results):
        say(f"warning: {text}", err=True)
    for table in micro.tables(results):
        show_table(table)
    if plot:
        micro.bandwidth_picture(results, platform, plot)
    if json_file:
        micro.write_json(json_file, results, platform, profile)
    if csv:
        micro.write_csv(csv, results)
    for path in filter(None, outputs.values()):
        say(f"wrote {path}", err=True)


def _check_outputs(outputs: dict[str, Path | None], out: Path | None) -> None:
    for name, path in outputs.items():
        if path and out:
            raise click.UsageError(f"--out and --{name} exclude each other")


def _platform(
    machine: str | None, system: Path | None, network: Path | None, ranks: int | None, *, alone: bool
) -> Platform | None:
    """Return the machine; None where `alone`, a number of NPUs, is enough and given."""
    from armillary.platform import load_platform, read_platform

    astra_sim = bool(system or network)
    # The three ways to name a machine exclude each other.
    if machine and astra_sim:
        raise click.UsageError("--machine and --system or --network exclude each other")
    if astra_sim and not (system and network):
        raise click.UsageError(f"Missing {'--network' if system else '--system'}")
    if ranks and (machine or astra_sim or not alone):
        raise click.UsageError("--ranks is for --out without a machine")
    if machine:
        return load_platform(machine)
    if system and network:
        return read_platform(system, network)
    if not ranks:
        raise click.UsageError(
            f"Missing --machine (or --system and --network{', or --ranks' if alone else ''})"
        )
    # A number of ranks is given instead.
    return None


def _tests(collectives: str | None, patterns: str | None, profile: str) -> list[str]:
    """Return the chosen tests, each name checked; "all" collectives are those of the profile."""
    from armillary.base.errors import InputError, nearest, one_of
    from armillary.engine.common.nodes import ASTRA_SIM_OPERATIONS
    from armillary.workload.micro import COLLECTIVES, PATTERNS

    if collectives is None and patterns is None:
        collectives = _DEFAULT
    found = []
    # "all" is what the profile models; a name may be any.
    modelled = list(ASTRA_SIM_OPERATIONS if profile == "astra-sim" else COLLECTIVES)
    for flag, text, known, every in (
        ("--collective", collectives, list(COLLECTIVES), modelled),
        ("--pattern", patterns, list(PATTERNS), list(PATTERNS)),
    ):
        for word in text.split(",") if text is not None else ():
            name = word.strip()
            if name not in known and name != "all":
                raise InputError(f"{flag} '{name}': expected all, or {one_of(known)}{nearest(name, known)}")
            found += every if name == "all" else [name]
    # Names may be repeated or be in "all".
    return list(dict.fromkeys(found))


def _sizes(smallest: str, largest: str, factor: int) -> list[int]:
    from armillary.base.errors import InputError
    from armillary.base.units import parse_bytes
    from armillary.workload.micro import sizes

    ends = []
    for flag, text in (("--min", smallest), ("--max", largest)):
        try:
            ends.append(parse_bytes(text))
        except ValueError as error:
            raise InputError(f"{flag}: {error}") from error
    return sizes(ends[0], ends[1], factor)


def _cases(tests: list[str], npus: int, groups: str | None, element: str, sizes: list[int]) -> list[Case]:
    from armillary.workload.micro import sweep
    from armillary.workload.micro.collectives import group_sizes

    chosen = None
    if groups is not None:
        # "all": every divisor of the number of NPUs.
        chosen = group_sizes(npus) if groups.strip() == "all" else _numbers("--groups", groups, _members)
    return sweep(tests, npus, sizes, chosen, element)


def _numbers(option: str, text: str, read: Callable[[str], _T]) -> list[_T]:
    from armillary.base.errors import InputError

    try:
        return [read(word.strip()) for word in text.split(",")]
    except ValueError as error:
        raise InputError(f"{option} '{text}': {error}") from error


def _members(word: str) -> int:
    if (number := whole(word)) is None:
        raise ValueError(f"got '{word}', expected numbers of ranks, e.g. 8,64, or all")
    return number


def _ratio(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = 0.0
    # 0 or negative, and NaN, which fails both comparisons.
    if not 0 < value < 1e6:
        raise ValueError(f"got '{word}', expected numbers above 0 and below 1,000,000, e.g. 0.5,1,2")
    return value
