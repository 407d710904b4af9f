"""`armillary run --captured`: what was captured, with the constants of a software, and where its time goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.cli.outputs import say

if TYPE_CHECKING:
    from armillary.engine.common.timeline import Timeline
    from armillary.explore.training.captured import CapturedStep
    from armillary.report.places import Places


def captured_of(folder: str, machine: str, software: str | None, host_time: str | None) -> CapturedStep:
    """Return what `armillary capture --out` wrote on a machine, with the constants of a software."""
    from armillary.base.errors import InputError
    from armillary.base.units import parse_time
    from armillary.capture import read_captured
    from armillary.explore.training.captured import captured_step

    try:
        host_ns = round(parse_time(host_time)) if host_time else None
    except ValueError as error:
        raise InputError(f"--host-time: {error}") from error
    return captured_step(read_captured(folder), machine, software=software or "", host_ns=host_ns)


def places_of(step: CapturedStep, result: Timeline) -> tuple[Places, list[tuple[str, str, int]]]:
    """Return where the time and the memory of a run go, which its JSON file then says, too."""
    from armillary.report.places import Places, places_json

    places = Places(result, step.trace)
    memory = step.log_of(int(result.representative[places.cls])).peak_by
    result.info["captured"] = step.trace.about["captured"] | places_json(places, memory)
    return places, memory


def show_places(step: CapturedStep, places: Places, memory: list[tuple[str, str, int]]) -> None:
    """Print them, and what was captured."""
    from armillary.report.places import print_places
    from armillary.report.summary import on_console

    on_console(lambda console, _: print_places(places, memory, console))
    captured = step.trace.about["captured"]
    kernels = "fused as torch.compile does" if captured["fused"] else "each operator is a kernel"
    say(
        f"Captured: step {captured['step']} of {captured['script']} on {captured['ranks']} ranks, of which "
        f"{len(captured['run'])} were run; {kernels}"
    )
