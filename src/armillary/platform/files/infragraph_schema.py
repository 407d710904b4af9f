"""The layout of InfraGraph files (InfraGraph 3.1, `docs/openapi.yaml` of Keysight/infragraph), YAML or JSON.

A file is one Infrastructure: devices made of components and of other devices, links by name, instances of devices, and
edges between components of instances. Endpoints are chosen by Python slices, ``nic[0:8]``.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from armillary.base.document import Document
from armillary.base.errors import InputError
from armillary.base.hints import KeyPath, show
from armillary.platform.fields import Count, Part, first_error

Name = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[\sa-zA-Z0-9\-_()><\[\]]+$")]
Text = str | None
# As large as the units of our own files allow, so that what is read can be written.
Amount = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
_ONE = re.compile(r"(.+?)(?:\[(-?\d{1,9}|-?\d{0,9}:-?\d{0,9}(?::-?\d{0,9})?)\])?", re.DOTALL)
# Not from within a run of blanks: that would take the square of its length.
_BLANKS = re.compile(r"(?<=[\[:])\s+|(?<!\s)\s+(?=[\]:])")


class _Part(Part):
    """A mapping of an InfraGraph: a key without a value (``edges:``) is as if it were not there."""

    @model_validator(mode="before")
    @classmethod
    def _without_nothing(cls, data: Any) -> Any:
        return (
            {key: value for key, value in data.items() if value is not None}
            if isinstance(data, dict)
            else data
        )


class BandwidthPart(_Part):
    """A bandwidth: one of three units."""

    choice: Literal["gigabits_per_second", "gigabytes_per_second", "gigatransfers_per_second"] | None = None
    gigabits_per_second: Amount | None = None
    gigabytes_per_second: Amount | None = None
    gigatransfers_per_second: Amount | None = None


class LatencyPart(_Part):
    """A latency: one of three units."""

    choice: Literal["ms", "us", "ns"] | None = None
    ms: Amount | None = None
    us: Amount | None = None
    ns: Amount | None = None


class PhysicalPart(_Part):
    """What a link is capable of, in each direction."""

    bandwidth: BandwidthPart | None = None
    latency: LatencyPart | None = None


class LinkPart(_Part):
    """A sort of links."""

    name: Name
    description: Text = None
    physical: PhysicalPart | None = None


class ComponentPart(_Part):
    """`count` alike parts of a device; one whose choice is device is a device of that name."""

    name: Name
    description: Text = None
    count: Count
    choice: Literal["custom", "device", "cpu", "xpu", "nic", "memory", "port", "switch"]
    custom: dict[str, Any] | None = None
    device: dict[str, Any] | None = None
    cpu: dict[str, Any] | None = None
    xpu: dict[str, Any] | None = None
    nic: dict[str, Any] | None = None
    memory: dict[str, Any] | None = None
    port: dict[str, Any] | None = None
    switch: dict[str, Any] | None = None


class DeviceEnd(_Part):
    """Components of a device, or of the devices in it."""

    component: str = Field(min_length=1)
    device: str | None = Field(default=None, min_length=1)


class InstanceEnd(_Part):
    """Components of instances."""

    instance: str = Field(min_length=1)
    component: str = Field(min_length=1)


SchemeName = Literal["one2one", "many2many", "ring"]


class DeviceEdge(_Part):
    """Links between components of a device."""

    ep1: DeviceEnd
    ep2: DeviceEnd
    scheme: SchemeName
    link: Name


class InstanceEdge(_Part):
    """Links between components of instances."""

    ep1: InstanceEnd
    ep2: InstanceEnd
    scheme: SchemeName
    link: Name


class DevicePart(_Part):
    """A device."""

    name: Name
    description: Text = None
    components: list[ComponentPart] = Field(min_length=1)
    links: list[LinkPart] = Field(default=[])
    edges: list[DeviceEdge] = Field(default=[])


class InstancePart(_Part):
    """`count` instances of a device."""

    name: Name
    description: Text = None
    device: Name
    count: Count


class Infrastructure(_Part):
    """A whole file."""

    name: Name = "infrastructure"
    description: Text = None
    devices: list[DevicePart] = Field(min_length=1)
    links: list[LinkPart] = Field(default=[])
    instances: list[InstancePart] = Field(min_length=1)
    edges: list[InstanceEdge] = Field(default=[])


class Attribute(_Part):
    """An attribute of a part."""

    attribute: str
    value: str | int | float


class NodeNote(_Part):
    """Attributes of nodes, by their expanded name ``host.0.xpu.3`` or by slices, ``host[0:2]xpu[0:3]``."""

    name: str
    attributes: list[Attribute] = Field(default=[])


class EdgeNote(_Part):
    """Attributes of the edges between nodes."""

    ep1: str
    ep2: str
    attributes: list[Attribute] = Field(default=[])


class LinkNote(_Part):
    """Attributes of all edges of a link, by its name."""

    name: str
    attributes: list[Attribute] = Field(default=[])


class RankNote(_Part):
    """The rank of an xpu, as the first versions of ASTRA-sim-service write it."""

    rank_identifier: Annotated[int, Field(ge=0, le=2**31)]
    npu_identifier: str


class Annotations(_Part):
    """What stands beside the infrastructure: InfraGraph's lists, and those of ASTRA-sim-service's first versions."""

    nodes: list[NodeNote] = Field(default=[])
    edges: list[EdgeNote] = Field(default=[])
    links: list[LinkNote] = Field(default=[])
    graph: list[Attribute] = Field(default=[])
    rank_assignment: list[RankNote] = Field(default=[])
    device_specifications: list[dict[str, Any]] = Field(default=[])
    link_specifications: list[dict[str, Any]] = Field(default=[])

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        """Turn link specifications into attributes of links."""
        for each in self.link_specifications:
            name = each.get("link_name")
            if not isinstance(name, str):
                raise ValueError(
                    f"link_specifications: link_name is {show(name)}, expected the name of a link"
                )
            rows = [
                {"attribute": str(key), "value": value} for key, value in each.items() if key != "link_name"
            ]
            self.links.append(LinkNote.model_validate({"name": name, "attributes": rows}))
        return self


def parsed(document: Document) -> tuple[Infrastructure, Annotations, KeyPath]:
    """Return a file's infrastructure, its annotations, and where in the file the former stands.

    Raises:
        InputError: It does not fit the layout; a name is used twice.
    """
    data = document.data
    at: KeyPath = ("infrastructure",) if "infrastructure" in data else ()
    if at:
        document.check_keys(("infrastructure", "annotations"))
    given = data.get("annotations") if at else None
    try:
        place: KeyPath = at
        found = Infrastructure.model_validate(data["infrastructure"] if at else data)
        place = ("annotations",)
        notes = Annotations.model_validate(given if given is not None else {})
    except ValidationError as error:
        raise first_error(document, error, place) from None
    _check_names(document, found, at)
    return found, notes, at


def _check_names(document: Document, found: Infrastructure, at: KeyPath) -> None:
    lists: list[tuple[KeyPath, list[Any]]] = [
        ((*at, key), getattr(found, key)) for key in ("devices", "links", "instances")
    ]
    for number, device in enumerate(found.devices):
        place = (*at, "devices", number)
        lists += [((*place, "components"), device.components), ((*place, "links"), device.links)]
    for place, parts in lists:
        seen: set[str] = set()
        for number, part in enumerate(parts):
            if part.name in seen:
                raise document.error((*place, number, "name"), f"name '{part.name}' is used twice")
            seen.add(part.name)


def sliced(text: str) -> list[tuple[str, slice]]:
    """Return the names and slices of ``cx5[0].port[0:2]``; without a slice, all.

    Raises:
        InputError: It is no such text.
    """
    parts = []
    for word in _BLANKS.sub("", text).split("."):
        match = _ONE.fullmatch(word)
        if match is None:
            raise InputError(f"got '{text}', expected a component and its slice, e.g. 'nic[0:8]'")
        name, inside = match[1], match[2]
        if inside is None:
            chosen = slice(None)
        elif ":" in inside:
            ends = [int(end) if end not in ("", "-") else None for end in inside.split(":")]
            if len(ends) == 3 and ends[2] == 0:
                raise InputError(f"got '{text}', whose step is 0, expected another")
            chosen = slice(*ends)
        else:
            number = int(inside)
            # The last one, -1, has no end.
            chosen = slice(number, number + 1 if number != -1 else None)
        parts.append((name, chosen))
    return parts
