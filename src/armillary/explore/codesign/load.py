"""Reading a mix, machines and a budget: everything is checked before anything is simulated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from armillary.base.counts import check_count
from armillary.base.document import Document, Source, is_there, read_document
from armillary.base.errors import InputError, nearest, one_of
from armillary.base.hints import KeyPath, key_text
from armillary.compute.machine import Machine, machine_of
from armillary.explore.codesign.schema import BudgetPart, CodesignFile, MachinePart, ServingPart, TrainingPart
from armillary.explore.codesign.workload import Service, Training, Workload, with_weights
from armillary.explore.cost import Costs, load_costs
from armillary.explore.sweep.facts import known_model
from armillary.explore.sweep.keys import at
from armillary.explore.sweep.load import axes_of
from armillary.explore.sweep.space import Space
from armillary.platform.fields import first_error, first_problem
from armillary.serving.load import KINDS, cut, load_requests
from armillary.serving.service import limits_of
from armillary.serving.spread import Wanted
from armillary.workload.models.schema import Decoder

MOST_MACHINES = 20_000
"""Machines of all spaces: each is read and priced, which takes a minute."""
AS_MEASURED: tuple[KeyPath, ...] = (
    ("platform", "npu", "memory", "bandwidth"),
    ("platform", "npu", "peak"),
)
"""Keys that compute model gpu does not take from the machine."""


@dataclass(frozen=True)
class Entry:
    """A kind of machine.

    Attributes:
        name: What tables call it.
        software: What trains on it by default.
        costs: Prices and energies.
        space: Its machines.
        by_links: Whether its collectives follow its links, though some were measured.
        assumptions: What it takes from elsewhere.
    """

    name: str
    software: str
    costs: Costs
    space: Space
    by_links: bool
    assumptions: tuple[str, ...]

    def machines(self) -> Iterator[Machine]:
        """Yield its machines in order.

        Raises:
            InputError: one is impossible; says which.
        """
        for point in self.space.points():
            shown = ", ".join(f"{name} {value}" for name, value in point.values.items())
            name = f"{self.name}: {shown}" if shown else self.name
            keys: Mapping[str, Any] = point.document["platform"]
            try:
                made = machine_of(without_fit(keys) if self.by_links else keys)
            except InputError as error:
                raise InputError(f"{name}: {error}") from None
            yield replace(made, name=name, software=self.software, assumptions=self.assumptions)


@dataclass(frozen=True)
class Codesign:
    """A mix of workloads, machines, and a budget.

    Attributes:
        folder: Where paths begin.
        mix: Workloads, whose weights add up to 1.
        entries: Kinds of machines.
        budget: Budget of `worth.TITLES` -> most; those that are not there are not limited.
        reference: The machine that goodput is relative to.
        document: The file.
    """

    folder: Path
    mix: tuple[Workload, ...]
    entries: tuple[Entry, ...]
    budget: Mapping[str, float]
    reference: Machine
    document: Document


def load_codesign(source: Source, budget: Mapping[str, str | None] | None = None) -> Codesign:
    """Read a file of a mix, machines and a budget, or its content.

    Args:
        source: The file.
        budget: What replaces budgets of the file.

    Raises:
        InputError: it is malformed, or names what there is not; names file, line and key.
    """
    document = read_document(source, "mix of workloads", "yaml")
    try:
        given = CodesignFile.model_validate(document.data)
    except ValidationError as error:
        raise first_error(document, error) from None
    folder = document.path.parent if document.path else Path()
    mix = tuple(_workload(document, ("mix", number), each, folder) for number, each in enumerate(given.mix))
    most = {name: value for name, value in given.budget.model_dump().items() if value is not None}
    try:
        over = BudgetPart.model_validate(
            {name: value for name, value in (budget or {}).items() if value is not None}
        )
    except ValidationError as error:
        place, problem = first_problem(error)
        raise InputError(f"{key_text(place)}: {problem}") from None
    most |= {name: value for name, value in over.model_dump().items() if value is not None}
    if not most:
        raise document.error(
            ("budget",), "there is none, expected capital, cost_per_year or power, e.g. {power: 60 kW}"
        )
    entries = tuple(
        _entry(document, ("machines", number), each, folder) for number, each in enumerate(given.machines)
    )
    # Machines are compared: all are timed by their links, or none.
    if any(each.by_links for each in entries):
        entries = tuple(replace(each, by_links=True) for each in entries)
    count = sum(each.space.size for each in entries)
    check_count(count, MOST_MACHINES, f"{document.where(('machines',))}: machines", "fewer values")
    reference = next(entries[0].machines())
    if given.reference is not None:
        try:
            reference = machine_of(_source(folder, given.reference))
            if any(each.by_links for each in entries):
                reference = replace(
                    machine_of(without_fit(reference.keys)), name=reference.name, software=reference.software
                )
        except InputError as error:
            raise document.error(("reference",), str(error)) from None
    return Codesign(folder, with_weights(mix), entries, most, reference, document)


def without_fit(keys: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the keys of a machine whose collectives follow its links, not what was measured of them."""
    own = {key: value for key, value in (keys.get("collectives") or {}).items() if key != "fit"}
    return {**{key: value for key, value in keys.items() if key != "collectives"}, "collectives": own}


def _workload(
    document: Document, place: KeyPath, given: Mapping[str, Any], folder: Path
) -> Training | Service:
    part = TrainingPart if "train" in given else ServingPart
    try:
        found = part.model_validate(given)
    except ValidationError as error:
        raise first_error(document, error, place) from None
    key = "train" if isinstance(found, TrainingPart) else "serve"
    try:
        model = known_model(getattr(found, key), folder)
    except InputError as error:
        raise document.error((*place, key), str(error)) from None
    if isinstance(found, TrainingPart):
        for each in ("batch", "ranks"):
            if each in found.plan:
                raise document.error((*place, "plan", each), "expected it beside the plan, or not at all")
        return Training(model, found.batch, found.plan, found.software, found.weight)
    if not isinstance(model, Decoder):
        raise document.error((*place, key), f"expected a model of kind 'decoder', got '{model.kind}'")
    _check_options(document, (*place, "options"), found.options)
    try:
        limits_of(found.slo)
    except InputError as error:
        raise document.error((*place, "slo"), str(error)) from None
    drawn = found.load.partition(":")[0] in KINDS and not is_there(folder / found.load)
    try:
        requests = cut(load_requests(found.load if drawn else folder / found.load), found.first)
    except (InputError, OSError) as error:
        # A text may be too long for the name of a file.
        raise document.error((*place, "load"), str(error)) from None
    if requests.clients or len(requests) < 2:
        raise document.error((*place, "load"), "expected an open load of two requests or more")
    return Service(model, requests, found.slo, found.share, found.options, found.weight)


def _check_options(document: Document, place: KeyPath, options: Mapping[str, Any]) -> None:
    known = [each.name for each in fields(Wanted)]
    for name in options:
        if name not in known:
            raise document.error(
                (*place, name), f"no such option{nearest(str(name), known)}, expected {one_of(known)}"
            )
        if "replicas" in name or name.startswith("prefill"):
            raise document.error((*place, name), "replicas are chosen, expected other options only")


def _entry(document: Document, place: KeyPath, given: MachinePart, folder: Path) -> Entry:
    try:
        machine = machine_of(_source(folder, given.machine))
    except InputError as error:
        raise document.error((*place, "machine"), str(error)) from None
    try:
        costs = load_costs(_source(folder, given.costs))
    except InputError as error:
        raise document.error((*place, "costs"), str(error)) from None
    base = replace(document, data={"platform": dict(machine.keys)}, text="", name="machine", path=None)
    axes = axes_of(document, (*place, "vary"), given.vary, base)
    outer = str(_outermost(machine.keys))
    by_links = False
    for axis in axes:
        for key in axis.keys:
            where = (*place, "vary", next(text for text in given.vary if _owns(given.vary, text, key.text)))
            if key.path[:1] != ("platform",):
                raise document.error(where, "expected a key of the machine: platform.…")
            if machine.device and any(key.path[: len(each)] == each for each in AS_MEASURED):
                raise document.error(
                    where, f"compute model gpu takes kernels of {machine.device} as measured, so it has no effect; "
                    "expected a machine with compute: {roofline: true, efficiency: 60 %}"
                )  # fmt: skip
            if key.path[1:2] == ("network",) and (str(key.path[2]), key.path[-1]) != (outer, "size"):
                by_links = True
    fitted = (machine.keys.get("collectives") or {}).get("fit") is not None
    name = given.name or (given.machine if isinstance(given.machine, str) else "machine")
    return Entry(
        name, machine.software, costs, Space(axes, (), {"platform": machine.keys}, folder),
        by_links and fitted, machine.assumptions,
    )  # fmt: skip


def _owns(vary: Mapping[str, Any], text: str, key: str) -> bool:
    """Return whether an axis sets a key: its own, or one of its choices'."""
    choices = vary[text].get("choices") if isinstance(vary[text], Mapping) else None
    return key == text or any(key in each for each in (choices or {}).values())


def _outermost(keys: Mapping[str, Any]) -> int:
    """Return the place of the outermost dimension in the network of a machine."""
    network = at(keys, ("network",))
    return len(network) - 1 if isinstance(network, list) else -1


def _source(folder: Path, given: Any) -> Any:
    """Return a name, or the path of a file beside the file that names it."""
    if isinstance(given, str) and is_there(folder / given):
        return folder / given
    if not isinstance(given, str | Mapping):
        raise InputError(f"got {given!r}, expected a name, a file, or its content")
    return given
