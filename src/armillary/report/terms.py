"""What of a run is a term of interference, or timed by a fit."""

from __future__ import annotations

from typing import Any

from armillary.engine.common.timeline import Timeline
from armillary.platform.terms import words


def terms_lines(timeline: Timeline) -> list[str]:
    """Return "Collectives timed by fit a100-sxm" and "Terms: launch 5 µs, straggler 2 %", as far as there are any."""
    fit, terms = timeline.info.get("collective_fit"), timeline.info.get("terms")
    lines = [f"Collectives timed by fit {'; '.join([fit['name'], *fit['notes']])}"] if fit else []
    return [*lines, f"Terms: {words(terms)}"] if terms else lines


def terms_json(timeline: Timeline) -> dict[str, Any]:
    """Return the same for programs; None where there are none."""
    return {name: timeline.info.get(name) for name in ("collective_fit", "terms", "host_ns")}
