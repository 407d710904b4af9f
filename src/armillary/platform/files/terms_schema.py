"""What a study file says of terms of interference and overhead."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Tag

from armillary.base import units
from armillary.platform.fields import BY_TYPE, TAGS, Part, Quantity, Ruled, Time
from armillary.platform.limits import SHARE_OR_NONE
from armillary.platform.terms import PROCESSORS, TRAFFIC, Terms

Share = Annotated[float, Quantity(units.parse_percent, "percent", "10 %", SHARE_OR_NONE)]


class OverlapKeys(Part):
    """How much kernels and collectives that run at the same time on a rank slow each other."""

    compute: Share = Field(
        default=0.0, description="What a kernel takes longer while a collective moves data."
    )
    communication: Share = Field(
        default=0.0, description="What a collective takes longer while one of its ranks computes."
    )
    processors: Annotated[float, Ruled(PROCESSORS)] = Field(
        default=0.0,
        description="Processors (SMs) that a collective occupies; kernels bound by computation lack them.",
    )
    traffic: Annotated[float, Ruled(TRAFFIC)] = Field(
        default=0.0,
        description="Bytes through the memory for each byte that a collective sends; kernels bound by memory lack that "
        "bandwidth.",
    )


class CommunicationKeys(Part):
    """What collectives and messages take longer in a step than alone, by how far they go."""

    inside: Share = Field(default=0.0, description="Within a node, over links such as NVLink.")
    between: Share = Field(default=0.0, description="Between nodes, over NICs.")


class StepKeys(Part):
    """What an iteration takes outside of kernels: data loader, optimizer on the host, logging."""

    time: Time = Field(default=0.0, description="Of every iteration.")
    share: Share = Field(default=0.0, description="Of what the rest takes.")


Communication = Annotated[
    Annotated[Share, Tag(TAGS[0])] | Annotated[CommunicationKeys, Tag(TAGS[1])], BY_TYPE
]


class TermsKeys(Part):
    """Terms of a step that kernels and links do not show; each is off unless it is given (physical)."""

    overlap: OverlapKeys = OverlapKeys()
    communication: Communication = Field(
        default=0.0,
        description="What collectives and messages take longer in a step than alone: everywhere, or inside a node and "
        "between nodes.",
    )
    launch: Time = Field(
        default=0.0, description="The least time of a kernel: what the CPU needs to issue it."
    )
    straggler: Share = Field(
        default=0.0, description="Standard deviation of the speeds of ranks; a step waits for the slowest."
    )
    step: StepKeys = StepKeys()


def terms_of(keys: TermsKeys) -> Terms:
    """Return the terms that a study file asks for."""
    given = keys.communication
    by_place = given if isinstance(given, CommunicationKeys) else CommunicationKeys()
    return Terms(
        overlap_compute=keys.overlap.compute,
        overlap_communication=keys.overlap.communication,
        overlap_processors=keys.overlap.processors,
        overlap_traffic=keys.overlap.traffic,
        communication=0.0 if isinstance(given, CommunicationKeys) else given,
        communication_inside=by_place.inside,
        communication_between=by_place.between,
        launch=keys.launch,
        straggler=keys.straggler,
        step_time=keys.step.time,
        step_share=keys.step.share,
    )
