"""Which kinds of replica are tried: devices that share matrices or experts, by engine, precision and limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import product
from typing import Any

from armillary.base.errors import InputError, nearest, one_of
from armillary.base.hints import show
from armillary.base.kinds import check_kinds
from armillary.compute.machine import Machine
from armillary.platform.kernels import PRECISIONS
from armillary.serving.kernels import ENGINES, engines_of
from armillary.serving.requests import Requests
from armillary.serving.service import MOST_BUDGET, MOST_SEQUENCES, Service, service, within
from armillary.serving.spread import Wanted
from armillary.workload.models import Model
from armillary.workload.models.schema import Decoder

Progress = Callable[[str, int, int], None]
"""Called with what is done, how many are done, and of how many."""
CHOSEN = (
    "tp", "dp", "ep", "replicas", "prefill_replicas", "decode_replicas", "prefill_tp", "prefill_dp", "blocks",
)  # fmt: skip
"""Attributes of `Wanted` that are chosen here, or differ from choice to choice."""
SEVERAL = ("engine", "precision", "budget", "sequences")
"""Of these several may be given, of which one is chosen."""
BUDGETS = (16384, 8192, 4096, 2048, 1024)
SEQUENCES = (512, 256, 128, 64, 32, 16)
"""Most tokens and sequences of a step that are tried where none is given: defaults of engines and powers of two, the
widest first, which make requests wait least."""


@dataclass(frozen=True)
class Kind:
    """A kind of replica.

    Attributes:
        service: It, on the whole machine.
        words: What of its engine, precision and limits differs from others that are tried.
        limited: Returns it with other most tokens and most sequences of a step; None: its own.
        budgets: Most tokens of a step that may be tried besides.
        sequences: Most sequences of a step that may be.
    """

    service: Service
    words: str
    limited: Callable[[int | None, int | None], Kind]
    budgets: tuple[int, ...] = ()
    sequences: tuple[int, ...] = ()

    @property
    def devices(self) -> int:
        """Devices of a replica."""
        return self.service.replica_devices

    def pairs_with(self, other: Kind) -> bool:
        """Whether one decodes what the other has computed: both are of the same engine and precision."""
        return self.words == other.words


def spreads_of(model: Model, machine: Machine) -> list[tuple[str, dict[str, Any]]]:
    """Return how a replica may be spread, each with its name and options: devices that share matrices, or experts."""
    sizes = [
        each for each in range(1, machine.npus + 1) if machine.npus % each == 0 and each & (each - 1) == 0
    ]
    found: list[tuple[str, dict[str, Any]]] = [(f"tp {each}", {"tp": each}) for each in sizes]
    if isinstance(model, Decoder) and model.experts is not None:
        found += [(f"dp {each}", {"tp": 1, "dp": each, "ep": each}) for each in sizes[1:]]
    return found


def kinds_of(
    model: Model, machine: Machine, requests: Requests, options: Mapping[str, Any], tell: Progress
) -> tuple[list[Kind], dict[str, str]]:
    """Return each kind of replica that fits, with the usual limits of a step, and why others do not.

    Args:
        model: What is served.
        machine: Where.
        requests: The load.
        options: As of `Wanted`; of those of `SEVERAL` sequences of values, too.
        tell: Called now and then.

    Raises:
        InputError: none fits, or an option is none.
    """
    several, rest = _several(options), {key: value for key, value in options.items() if key not in SEVERAL}
    measured = engines_of(machine.device) if machine.device else ()
    engines = several["engine"] or list(measured) or ["vllm"]
    precisions, spreads = several["precision"] or [None], spreads_of(model, machine)
    rejected = {
        f"engine {each}": f"its kernels were not measured on {machine.device}, so it cannot be told from others"
        for each in (ENGINES if not several["engine"] else ())
        if each not in engines
    }
    found: list[Kind] = []
    total, done = len(engines) * len(precisions) * len(spreads), 0
    for engine, precision in product(engines, precisions):
        words = ", ".join(
            [engine] * (len(engines) > 1) + [precision or "as published"] * (len(precisions) > 1)
        )
        own: list[Kind] = []
        for name, keys in spreads:
            done += 1
            size = keys["tp"] * keys.get("dp", 1)
            what = f"{name}, {words}" if words else name
            # Beyond a node all-reduces go over the fabric: only where nothing smaller fits.
            if size > machine.domain and any(each.devices <= machine.domain for each in own):
                rejected[what] = (
                    f"more than the {machine.domain} devices of a node, where a replica fits on fewer"
                )
                continue
            wanted = Wanted(**{**rest, **keys, "engine": engine, "precision": precision})
            try:
                own.append(_kind(model, machine, requests, wanted, words, several))
            except InputError as error:
                rejected[what] = str(error)
            tell("timing steps", done, total)
        found += own
    if not found:
        raise InputError(f"plan serve: no replica fits on {machine.name}; {[*rejected.values()][-1]}")
    return found, rejected


def _kind(
    model: Model,
    machine: Machine,
    requests: Requests,
    wanted: Wanted,
    words: str,
    several: Mapping[str, list[Any]],
) -> Kind:
    """Return a kind with the first of the limits that were given, or the usual ones."""
    budgets, sequences = several["budget"], several["sequences"]
    first = (budgets[0] if budgets else None), (sequences[0] if sequences else None)

    @cache
    def limited(budget: int | None, most: int | None) -> Kind:
        own = replace(
            wanted,
            budget=first[0] if budget is None else budget,
            sequences=first[1] if most is None else most,
        )
        limits = [f"at most {budget:,} tokens"] if budget else []
        limits += [f"at most {most:,} sequences"] if most else []
        said = f"{' and '.join(limits)} a step" if limits else ""
        of = service(model, machine, requests, own)
        return Kind(
            of, ", ".join(filter(None, (words, said))), limited,
            _others(budgets, BUDGETS, of.engine.budget), _others(sequences, SEQUENCES, of.engine.sequences),
        )  # fmt: skip

    return limited(None, None)


def _others(given: Sequence[int], usual: Sequence[int], own: int) -> tuple[int, ...]:
    """Return the limits that may be tried besides the kind's own."""
    return tuple(each for each in given or usual if each != own)


def _several(options: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the values of each of `SEVERAL`, none if it is not said.

    Raises:
        InputError: a name is none of the options, or one of several values is wrong.
    """
    names = [each.name for each in fields(Wanted) if each.name not in CHOSEN]
    for name in options:
        if name in CHOSEN:
            raise InputError(f"plan serve: {name} is chosen, expected it with serve only")
        if name not in names:
            raise InputError(
                f"plan serve: no option '{name}'{nearest(name, names)}, expected {one_of(names)}"
            )
    found: dict[str, list[Any]] = {}
    for name in SEVERAL:
        value = options.get(name)
        if isinstance(value, Sequence) and not isinstance(value, str):
            if not value:
                raise InputError(f"plan serve: {name}: got {show(value)}, expected one or several")
            found[name] = [*dict.fromkeys(value)]
        else:
            found[name] = [] if value is None else [value]
    # Here, as a kind that cannot be is left out later.
    for name, known in (("engine", ENGINES), ("precision", PRECISIONS)):
        for each in found[name]:
            if each not in known:
                raise InputError(f"{name} {show(each)}: expected {one_of(known)}{nearest(str(each), known)}")
    for name, most in (("budget", MOST_BUDGET), ("sequences", MOST_SEQUENCES)):
        for each in found[name]:
            check_kinds({name: each}, {name: "int"})
            within(name, each, 1, most)
    return found
