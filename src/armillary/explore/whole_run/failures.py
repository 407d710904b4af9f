"""Mean times between failures by component, from a file or a known machine.

::

    npus_per_host: 8
    components:
      npu: {per: npu, mtbf: 80000 h}
      host: {per: host, mtbf: 60000 h}
      leaf: {per: job, count: 128, mtbf: 200000 h}      # there are 128 of them, however many NPUs
      software: {per: npu, mtbf: 300000 h, hardware: false}   # needs a restart, but no other node
"""

from __future__ import annotations

import functools
from math import fsum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from armillary.base.document import Source, is_there, read_document
from armillary.base.errors import InputError, nearest
from armillary.explore.whole_run.quantities import seconds
from armillary.platform.fields import Count, Part, Quantity, first_error

_FOLDER = Path(__file__).parent / "presets"
Long = Annotated[float, Quantity(seconds, "time", "50000 h")]


class Component(Part):
    """One kind of component that fails."""

    per: Literal["npu", "host", "job"] = Field(description="There are as many as NPUs, as hosts, or `count`.")
    mtbf: Long = Field(description="Mean time between failures of one.")
    count: Count = Field(default=1, description="For each NPU or host, or in the whole job.")
    hardware: bool = Field(default=True, description="Its failure takes a node away until it is repaired.")
    says: str = Field(default="", description="Where the number is from.")


class Failures(Part):
    """Components of a machine and how often they fail."""

    title: str = ""
    source: str = ""
    npus_per_host: Count = 8
    components: dict[str, Component] = Field(min_length=1)

    def rates(self, npus: int) -> dict[str, float]:
        """Return failures per second of the whole machine by component."""
        # The last host may be partly used, but it can fail all the same.
        many = {"npu": npus, "host": -(-npus // self.npus_per_host), "job": 1}
        # Failures of independent components add up: rates of exponential times.
        return {name: each.count * many[each.per] / each.mtbf for name, each in self.components.items()}

    def hardware_share(self, npus: int) -> float:
        """Return the share of failures that take a node out of service."""
        rates = self.rates(npus)
        hardware = (rate for name, rate in rates.items() if self.components[name].hardware)
        return fsum(hardware) / fsum(rates.values())


@functools.cache
def failure_preset_names() -> tuple[str, ...]:
    """Return the names of all known machines."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def load_failures(text: Source) -> Failures:
    """Read a file or a preset; a time such as ``50000 h`` is the MTBF of an NPU, and nothing else fails.

    Raises:
        InputError: it is none of these, or malformed.
    """
    source: Source = text
    if isinstance(text, str) and not is_there(text):
        if text in failure_preset_names():
            source = _FOLDER / f"{text}.yaml"
        # A duration instead of a name: one component, every NPU alike.
        elif text[:1].isdigit() or text[:1] == ".":
            source = {"components": {"npu": {"per": "npu", "mtbf": text}}}
        elif not Path(text).suffix:
            names = failure_preset_names()
            raise InputError(
                f"--mtbf: got '{text}', expected a time of an NPU (50000 h), a file, or one of "
                f"{', '.join(names)}{nearest(text, names)}"
            )
    document = read_document(source, "failures", "yaml")
    try:
        return Failures.model_validate(document.data)
    except ValidationError as error:
        raise first_error(document, error) from None
