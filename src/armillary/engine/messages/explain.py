"""Say what holds up the messages of a run that cannot finish."""

from __future__ import annotations

from armillary.engine.messages import message_layout_kernel as lk
from armillary.engine.messages.lower import MessageProgram
from armillary.engine.messages.run import MessageRun
from armillary.units import format_time


def explain(program: MessageProgram, run: MessageRun) -> str:
    """Return lines that name a pair of NPUs without a way, links that are down, and links that wait for each other."""
    stage = program.stages[run.scalar(lk.V_STAGE)]
    topology = stage.topology
    lines = [f"{run.scalar(lk.V_FLYING)} messages are under way and never arrive"]
    since = f"from {format_time(stage.time)} on"
    lost = run.scalar(lk.V_LOST)
    if lost:
        source, target = program.pairs[lost - 1].tolist()
        lines.append(f"no way from {topology.node_name(source)} to {topology.node_name(target)} {since}")
    down = [link for link in run.blocked if not topology.bandwidth[link]]
    if down:
        lines.append(f"a message waits for {topology.link_name(down[0])}, which is down {since}")
    elif run.blocked:
        names = ", ".join(topology.link_name(link) for link in [*run.blocked, run.blocked[0]])
        lines.append(f"these links wait for each other, in this order: {names}")
    return "".join(f"\n{line}" for line in lines) if run.scalar(lk.V_FLYING) else ""
