"""Say what holds up the messages of a run that cannot finish."""

from __future__ import annotations

from collections.abc import Callable

from armillary.engine.messages import message_layout_kernel as lk
from armillary.engine.messages.lower import MessageProgram
from armillary.engine.messages.run import MessageRun
from armillary.units import format_time

SHOWN = 3
SHOWN_OF_CYCLE = 16


def explain(program: MessageProgram, run: MessageRun) -> str:
    """Return lines that name a pair of NPUs without a way, links that are down, and links that wait for each other."""
    flying = run.scalar(lk.V_FLYING)
    if not flying:
        return ""
    stage = run.scalar(lk.V_STAGE)
    topology = program.stages[stage].topology
    lines = [
        f"{flying} message{'s are' if flying > 1 else ' is'} under way and never arrive{'s'[flying > 1 :]}"
    ]
    lost = run.scalar(lk.V_LOST)
    if lost:
        source, target = program.pairs[lost - 1].tolist()
        ways = f"{topology.node_name(source)} to {topology.node_name(target)}"
        lines.append(
            f"no way from {ways} {_lost_when(program, lost - 1)}: what is sent then stays where it is"
        )
    down = [link for link in run.blocked if not topology.bandwidth[link]]
    lines += [
        f"messages wait for {topology.link_name(link)}, which is down from {_down_since(program, stage, link)} on"
        for link in down[:SHOWN]
    ]
    if len(down) > SHOWN:
        lines.append(f"and for {len(down) - SHOWN} more that are down")
    if down:
        lines.append("messages keep the way on which they left; only those that leave later take another")
    elif run.blocked:
        lines += _cycle(run.blocked, topology.link_name)
    return "".join(f"\n{line}" for line in lines)


def _cycle(links: list[int], name: Callable[[int], str]) -> list[str]:
    shown = [name(link) for link in links[:SHOWN_OF_CYCLE]]
    rest = len(links) - len(shown)
    names = ", ".join([*shown, *([f"{rest} more"] if rest else []), shown[0]])
    return [
        f"deadlock: the buffers of {len(links)} links are full and wait for each other, in this order: {names}",
        "routing without such a cycle, larger buffers or more virtual channels may avoid this deadlock",
    ]


def _lost_when(program: MessageProgram, pair: int) -> str:
    """Return when a pair has no way for the first time."""
    lost = program.tables["LOST"].reshape(len(program.stages), -1)[:, pair]
    first = int(lost.argmax())
    after = [
        stage.time for stage, still in zip(program.stages[first:], lost[first:], strict=True) if not still
    ]
    end = f"to {format_time(after[0])}" if after else "on"
    return f"from {format_time(program.stages[first].time)} {end}"


def _down_since(program: MessageProgram, stage: int, link: int) -> str:
    """Return from when on a link is down that is so in a stage."""
    while stage and not program.stages[stage - 1].topology.bandwidth[link]:
        stage -= 1
    return format_time(program.stages[stage].time)
