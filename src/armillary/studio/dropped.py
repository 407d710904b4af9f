"""Traces that were dropped on the page: read and simulated as ``armillary run`` does it, within its limits."""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from armillary.base.allowed import SIMULATED
from armillary.base.document import Document
from armillary.base.errors import ArmillaryError, InputError
from armillary.base.files import make_folder
from armillary.base.json_text import parse_json
from armillary.base.text import on_one_line
from armillary.convert import front_end
from armillary.engine import simulate
from armillary.explore.result import Result, breakdown_of, three_lines
from armillary.lab.extrapolation import as_all_ranks
from armillary.platform.model import recorded_machine
from armillary.report.reasons import explain
from armillary.report.summary import assumed, assumed_of_input
from armillary.report.time_breakdown import TITLES
from armillary.studio.answers import Progress, machines
from armillary.studio.question import check_machine
from armillary.trace import Trace, load_trace
from armillary.trace.inputs import check_recorded, read_input, without_time
from armillary.trace.trace import recorded_world

KEYS = ("trace", "from_one_rank", "machine", "fabric", "peak")
FOLDER = "traces"
"""What the folder of several files is called, here and in the command line."""
_PREFIX = "armillary-dropped-"
_PLACE = re.compile(rf"[^\s'\"`]*{_PREFIX}[^/\s]*/{FOLDER}(/)?")
_RANK = re.compile(r"(.+)\.(\d{1,9})\.(?:et|et\.gz|et\.zst|json)")


Files = tuple[tuple[str, str, bool], ...]


@dataclass(frozen=True)
class Dropped:
    """A trace on a machine.

    Attributes:
        files: Name, path, and whether it is Chakra's (else PyTorch's), of each file.
        from_one_rank: Whether all ranks do what the one of the files did.
        machine: A preset, which may be counted; "": all takes its recorded time.
        fabric: Factor of the bandwidth between nodes.
        peak: Factor of the peaks of devices.
    """

    files: Files
    from_one_rank: bool
    machine: str
    fabric: float
    peak: float

    @property
    def chakra(self) -> bool:
        """Whether the files are Chakra's; else they are PyTorch's."""
        return all(chakra for _, _, chakra in self.files)

    @property
    def name(self) -> str:
        """What the trace is called on the page."""
        more = f" and {len(self.files) - 1:,} more" if len(self.files) > 1 else ""
        return f"{self.files[0][0]}{more}"

    @property
    def said(self) -> str:
        """The trace and its machine, in words."""
        changed = [
            f"{name} {factor:g} times as fast"
            for name, factor in (("fabric", self.fabric), ("peak", self.peak))
            if factor != 1
        ]
        return ", ".join(
            [f"{self.name}, {f'on {self.machine}' if self.machine else 'as recorded'}", *changed]
        )

    @property
    def prefix(self) -> str:
        """What a command calls a trace of Chakra."""
        found = {match[1] if (match := _RANK.fullmatch(name)) else name for name, _, _ in self.files}
        if len(found) > 1:
            raise InputError(
                f"{' and '.join(sorted(found)[:2])}: are different traces, expected files of one, "
                "PREFIX.RANK.et of every rank"
            )
        name = found.pop()
        # One file alone is replayed as it is, whichever rank it is of.
        return self.files[0][0] if len(self.files) == 1 and not self.machine else name

    @property
    def source(self) -> str:
        """What a command calls a trace of PyTorch: the file, or the folder of all."""
        return FOLDER if len(self.files) > 1 else self.files[0][0]


class Loaded(NamedTuple):
    """A trace, and what was said when it was read."""

    trace: Trace
    said: tuple[str, ...]


class Ran(NamedTuple):
    """A trace that was simulated; `files` describe a machine that was changed."""

    asked: Dropped
    loaded: Loaded
    result: Result
    files: Mapping[str, str]


def read_dropped(data: Mapping[str, Any]) -> Dropped:
    """Return what a question about files asks; `armillary.studio.uploads` has put their places in.

    Raises:
        InputError: a key is not known, or a value is wrong.
    """
    document = Document("question", dict(data))
    document.check_keys(KEYS)
    files = tuple((str(name), str(path), bool(chakra)) for name, path, chakra in data["trace"])
    one = data.get("from_one_rank", False)
    if not isinstance(one, bool):
        document.reject(("from_one_rank",), one, "true or false")
    machine = data.get("machine") or ""
    if machine:
        check_machine(document)
    fabric, peak = (
        document.number((key,), data.get(key, 1), "a factor", low=0, exclusive=True)
        for key in ("fabric", "peak")
    )
    if not machine and not fabric == peak == 1:
        raise InputError("fabric and peak: all takes its recorded time, expected a machine or factors of 1")
    return Dropped(files, one, str(machine), fabric, peak)


@contextmanager
def _named() -> Iterator[None]:
    """Let errors name files as whoever dropped them does."""
    try:
        yield
    except ArmillaryError as error:
        error.args = (_plain(str(error)),)
        raise


def _plain(text: str) -> str:
    """Return a text without the folder that a file lay in."""
    return _PLACE.sub(lambda found: "" if found[1] else FOLDER, text)


@lru_cache(maxsize=1)
def _loaded(files: Files, from_one_rank: bool, whole: bool) -> Loaded:
    asked = Dropped(files, from_one_rank, "any" if whole else "", 1, 1)
    with _named(), tempfile.TemporaryDirectory(prefix=_PREFIX) as made:
        folder = Path(made) / FOLDER
        make_folder(folder)
        for name, place, _ in files:
            (folder / name).symlink_to(place)
        if asked.chakra:
            if from_one_rank:
                raise InputError(
                    "from_one_rank: is for traces of PyTorch; `armillary trace extrapolate` has it for .et files"
                )
            path = folder / asked.prefix
            return Loaded(load_trace(path, bytes_per_node=SIMULATED) if whole else read_input(path).trace, ())
        source = folder if len(files) > 1 else folder / files[0][0]
        converted = front_end("pytorch").convert([source])
        said = [f"warning: {_plain(text)}" for text in converted.warnings] + [*converted.statements]
        trace = converted.trace
        if from_one_rank:
            trace, warning = as_all_ranks(trace, asked.source)
            said.append(f"warning: {warning}")
        return Loaded(trace, tuple(map(on_one_line, said)))


def load(asked: Dropped) -> Loaded:
    """Return the trace that a question is about.

    Raises:
        InputError: its files are no trace.
        ShortageError: it is too large.
    """
    # Without a machine a file of Chakra's may be that of one rank of many.
    return _loaded(asked.files, asked.from_one_rank, asked.chakra and bool(asked.machine))


def about(data: Mapping[str, Any], tell: Progress) -> dict[str, Any]:
    """Return what the files of a question are: their kind, ranks, and whether all has a recorded time."""
    asked = read_dropped(data)
    trace = load(asked).trace
    return {
        "kind": "chakra" if asked.chakra else "pytorch",
        "ranks": trace.n_ranks,
        "world": max(trace.n_ranks, *map(recorded_world, trace.graphs)),
        "nodes": sum(graph.n_nodes for graph in trace.graphs),
        "recorded": not any(without_time(graph).any() for graph in trace.graphs),
    }


def find(data: Mapping[str, Any]) -> Ran:
    """Return the run that a question asks for.

    Raises:
        InputError, StuckError, ShortageError: as ``armillary run``.
    """
    return _found(json.dumps(data, sort_keys=True))


@lru_cache(maxsize=2)
def _found(text: str) -> Ran:
    asked = read_dropped(parse_json(text, "question"))
    loaded = load(asked)
    if not asked.machine:
        with _named():
            check_recorded(loaded.trace)
        platform, files = recorded_machine(loaded.trace.n_ranks), {}
    else:
        machine = machines.of(asked.machine, asked.fabric, asked.peak)
        platform, files = machine.machine.platform, dict(machine.files)
    again = partial(simulate, loaded.trace)
    with _named():
        result = Result(asked.name, again(platform), platform, again)
    return Ran(asked, loaded, result, files)


def run(data: Mapping[str, Any], tell: Progress) -> dict[str, Any]:
    """Return a run of the files of a question: what it is, why, and how to ask for it."""
    found = find(data)
    result, timeline = found.result, found.result.run
    headline, bound, parts = three_lines(timeline)
    assumptions = [text.removeprefix("Assumed: ") for text in assumed_of_input(timeline)]
    assumptions += filter(None, [assumed(timeline).replace(" assumed:", ":", 1)])
    assumptions += [*found.loaded.said, *(f"warning: {text}" for text in timeline.info.get("warnings", []))]
    return {
        "prediction": {
            "model": found.asked.name, "machine": found.asked.machine, "devices": timeline.n_ranks, "software": "",
            "step_time_s": result.step_time, "interval_s": result.interval, "mfu": result.mfu, "tokens_per_s": None,
            "memory": None, "parts_s": breakdown_of(timeline), "limits": parts, "plan": {},
            "assumptions": [*map(_plain, assumptions)],
        },
        "headline": headline,
        "memory": bound,
        "plan": found.asked.said,
        "titles": TITLES,
        "why": [[each.text, each.help] for each in explain(timeline)],
        **take_away(found),
    }  # fmt: skip


def what_if(data: Mapping[str, Any], tell: Progress) -> dict[str, Any]:
    """Return the effect of each change of the machine, as the page of a run has it."""
    found = find(data)
    if not found.asked.machine:
        raise InputError("what if: all takes its recorded time, which no machine changes; expected a machine")
    before = found.result.step_time
    rows = [
        {"change": each.text, "set": {}, "fabric": found.asked.fabric, "peak": found.asked.peak}
        | (
            {"refused": each.remark}
            if each.seconds is None
            else {"step_time_s": each.seconds, "gain": before / each.seconds - 1 if each.seconds else 0.0}
        )
        for each in found.result.tried()
    ]
    for row in rows:
        tell({"progress": {"what": "predicted", "done": len(rows), "of": len(rows)}, "row": row})
    return {"step_time_s": before, "plan": found.asked.said, "rows": rows}


def take_away(found: Ran) -> dict[str, Any]:
    """Return the command line, the Python and the study that do the same, and the files that they need."""
    asked = found.asked
    machine = "machine.yaml" if found.files else asked.machine
    options = ["--workload", asked.prefix] if asked.chakra else ["--pytorch", asked.source]
    if asked.from_one_rank:
        options.append("--from-one-rank")
    words = ["armillary", "run", *options, *(["--machine", machine] if machine else [])]
    return {
        "command": shlex.join(words),
        "python": _python(asked, machine),
        "study": _study(found),
        "files": found.files,
    }


def _python(asked: Dropped, machine: str) -> str:
    lines = ["import armillary"]
    if not asked.chakra:
        lines += ["from pathlib import Path", "from armillary.convert import front_end"]
        read = f"front_end('pytorch').convert([Path({asked.source!r})]).trace"
    elif machine:
        read = f"armillary.load_trace({asked.prefix!r})"
    else:
        lines.append("from armillary.trace.inputs import read_input")
        read = f"read_input({asked.prefix!r}).trace"
    if asked.from_one_rank:
        lines.append("from armillary.lab.extrapolation import as_all_ranks")
    if not machine:
        lines.append("from armillary.platform.model import recorded_machine")
    lines += ["", f"trace = {read}"]
    if asked.from_one_rank:
        lines.append(f"trace, _ = as_all_ranks(trace, {asked.source!r})")
    on = repr(machine) if machine else "recorded_machine(trace.n_ranks)"
    lines += [f"found = armillary.simulate(trace, {on})", "print(found.total_ticks, 'ns')"]
    return "\n".join(lines) + "\n"


def _study(found: Ran) -> str:
    """Return the study file of a run; of a trace of PyTorch it names what a conversion of it makes."""
    asked = found.asked
    first = [on_one_line(three_lines(found.result.run)[0])]
    prefix, made = (asked.prefix, []) if asked.chakra else _made(asked, found.result.run.n_ranks)
    first += [f"`{shlex.join(each)}`" for each in made]
    if asked.machine:
        platform = (
            yaml.safe_load(found.files["machine.yaml"])["platform"]
            if found.files
            else {"preset": asked.machine}
        )
    else:
        (one,) = found.result.platform.dimensions if found.result.platform else ()
        network = {"name": one.name, "topology": one.topology, "size": one.size}
        platform = {
            "network": [{**network, "bandwidth": "1 GB/s", "latency": "0 ns"}], "compute": {"replay": True}
        }  # fmt: skip
    held = {"workload": {"trace": prefix}, "platform": platform}
    text = yaml.safe_dump(held, sort_keys=False, width=110, allow_unicode=True)
    return "".join(f"# {each}\n" for each in first) + text


def _made(asked: Dropped, ranks: int) -> tuple[str, list[list[str]]]:
    """Return the prefix of the trace that commands make of PyTorch's files, and these."""
    convert = ["armillary", "trace", "convert", "--from", "pytorch", asked.source, "--out"]
    if not asked.from_one_rank:
        return "step", [[*convert, "step"]]
    grow = [
        "armillary",
        "trace",
        "extrapolate",
        "one.0.et",
        "--from-one-rank",
        "--ranks",
        str(ranks),
        "--out",
        "step",
    ]
    return "step/rank", [[*convert, "one"], grow]
