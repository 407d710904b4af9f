"""What a study file says of the dimensions of a network, and of switches that compute."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from armillary.platform.files.schema_fields import BY_TYPE, TAGS, Bandwidth, Count, Part, Side, Time
from armillary.platform.model import TopologyName


class UpDown(Part):
    """Bandwidth that differs by direction (physical)."""

    up: Bandwidth = Field(description="Sent by an NPU.")
    down: Bandwidth = Field(description="Received by an NPU.")


class InNetwork(Part):
    """What switches can do with the data of collectives: add it up and multicast it (physical)."""

    rate: Bandwidth | None = Field(
        default=None, description="What a switch adds of each port's data; if absent as fast as data comes."
    )
    latency: Time = Field(default=0.0, description="What every message spends in a switch besides.")
    operations: Count | None = Field(
        default=None,
        description="Chunks of collectives that a switch works on at a time; further ones wait. If absent no limit.",
    )


class NetworkDimension(Part):
    """One network dimension; the first of the list is the innermost.

    A Torus or Mesh with a `shape` stands for as many dimensions, named NAME.0, NAME.1, …, each with this
    bandwidth and latency.
    """

    name: str | None = Field(default=None, min_length=1, description="E.g. chiplet, package, node, pod.")
    topology: TopologyName
    size: Count | None = Field(
        default=None, description="NPUs, or groups of NPUs: 2 or more, or 1 in a network of one NPU."
    )
    shape: list[Side] | None = Field(
        default=None, min_length=1, max_length=30, description="Instead of size, for Torus and Mesh."
    )
    bandwidth: Annotated[Annotated[Bandwidth, Tag(TAGS[0])] | Annotated[UpDown, Tag(TAGS[1])], BY_TYPE] = (
        Field(description="One way.")
    )
    per: Literal["npu", "link"] | None = Field(
        default=None,
        description="What has this bandwidth: if absent an NPU in physical, a link in astra-sim.",
    )
    latency: Time = Field(description="Per link hop.")
    in_network: InNetwork | None = Field(
        default=None, description="Collectives in the switch: algorithm in-switch."
    )

    @model_validator(mode="after")
    def _one_size(self) -> NetworkDimension:
        if self.in_network is not None and self.topology != "Switch":
            raise ValueError(f"got in_network for topology '{self.topology}', expected it for Switch only")
        if self.shape is not None and self.topology not in ("Torus", "Mesh"):
            raise ValueError(
                f"got a shape for topology '{self.topology}', expected it for Torus or Mesh only"
            )
        if self.shape is not None and self.size is not None:
            raise ValueError("expected either size or shape, not both")
        if self.shape is None and self.size is None:
            raise PydanticCustomError("missing_key", "missing key", {"key": "size"})
        return self
