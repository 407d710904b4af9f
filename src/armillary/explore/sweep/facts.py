"""Facts of a study that expressions may use before evaluation: about its machine, model and plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from math import prod
from pathlib import Path
from typing import Any

from armillary.base.document import Document
from armillary.base.errors import InputError
from armillary.base.hints import KeyPath
from armillary.explore.sweep.keys import at
from armillary.workload import models
from armillary.workload.models import Model, summary
from armillary.workload.models.schema import Decoder

_GENERATE: KeyPath = ("workload", "generate")
PLAN: dict[str, tuple[KeyPath, Any]] = {
    **{name: (("parallel", name), 1) for name in ("tp", "cp", "pp", "ep")},
    "batch": (("batch",), None),
    "microbatch": (("microbatch",), 1),
    "virtual": (("pipeline", "virtual"), 1),
    "iterations": (("iterations",), 1),
    "schedule": (("pipeline", "schedule"), "1f1b"),
    "sharding": (("data", "sharding"), "ddp"),
    "recompute": (("recompute",), "none"),
}
"""Keys of a plan by name: their paths below ``workload.generate`` and their defaults."""


def _npus(document: Mapping[str, Any], folder: Path) -> int:
    platform = document.get("platform")
    if not isinstance(platform, Mapping):
        raise InputError("npus: the study has no platform")
    # Only what decides the number of NPUs: points that differ in bandwidths share the entry of
    # the cache.
    parts = {
        key: platform[key] for key in ("preset", "network", "topology", "collectives") if key in platform
    }
    return npus_of(json.dumps(parts))


@lru_cache(maxsize=4096)
def npus_of(text: str) -> int:
    """Return how many NPUs a platform has, of which `text` holds what decides it, as JSON.

    Raises:
        InputError: it has no network that could be counted.
    """
    from armillary.platform.files.preset import expand

    found = json.loads(text)
    expanded, _ = expand(Document("study", found), ())
    network = expanded.data.get("network")
    try:
        if isinstance(network, list):
            # Dimensions multiply; a whole platform is read only for other networks.
            return prod(prod(part["shape"]) if "shape" in part else part["size"] for part in network)
    except (TypeError, KeyError):
        raise InputError("npus: the platform has no network that could be counted") from None
    from armillary.platform.files.native import load_platform

    return load_platform(found).npus


def _dp(document: Mapping[str, Any], folder: Path) -> Any:
    # Absent: what the other axes leave of the machine. A fraction means that they do not fit.
    given = at(document, (*_GENERATE, "parallel", "dp"))
    return (
        _npus(document, folder) / prod(_plan(document, name) for name in ("tp", "cp", "pp"))
        if given is None
        else given
    )


def _microbatches(document: Mapping[str, Any], folder: Path) -> Any:
    return _plan(document, "batch") / (_dp(document, folder) * _plan(document, "microbatch"))


def _plan(document: Mapping[str, Any], name: str) -> Any:
    path, default = PLAN[name]
    found = at(document, (*_GENERATE, *path))
    return default if found is None else found


def _of_plan(name: str) -> Callable[[Mapping[str, Any], Path], Any]:
    return lambda document, folder: _plan(document, name)


def _sequence(document: Mapping[str, Any], folder: Path) -> Any:
    return at(document, (*_GENERATE, "sequence")) or models.default_sequence(_model(document, folder))


def _model(document: Mapping[str, Any], folder: Path) -> Model:
    name = at(document, (*_GENERATE, "model"))
    if not isinstance(name, str):
        raise InputError("the study generates no model's workload: expected workload.generate.model")
    return known_model(name, folder)


def known_model(name: str, folder: Path) -> Model:
    """Return a model by name, or by its file below a folder, read once until it changes.

    Raises:
        InputError: there is none.
    """
    return _known(name, folder, _content(folder / name))[0]


def _parameters(name: str, folder: Path) -> models.Parameters:
    return _known(name, folder, _content(folder / name))[1]()


def _content(path: Path) -> tuple[object, ...]:
    """Return what tells the content of a model's file, or of a folder of the hub, from others; () if there is none."""
    try:
        return tuple(
            (str(each.resolve()), (found := each.stat()).st_mtime_ns, found.st_size)
            for each in (path, path / "config.json")
            if each is path or each.exists()
        )
    except (OSError, ValueError):
        # A preset, or reading it says what is wrong.
        return ()


@lru_cache(maxsize=64)
def _known(
    name: str, folder: Path, content: tuple[object, ...]
) -> tuple[Model, Callable[[], models.Parameters]]:
    """Return a model, and what counts its parameters once; a relative `folder` alone does not name a file."""
    model = models.load_model(name, folder)
    return model, cache(lambda: models.parameters(model))


def _decoder(name: str) -> Callable[[Mapping[str, Any], Path], Any]:
    def fact(document: Mapping[str, Any], folder: Path) -> Any:
        model = _model(document, folder)
        match name:
            case "kv_heads":
                return model.kv_heads if isinstance(model, Decoder) else summary.heads(model)
            case "experts":
                return model.experts.count if isinstance(model, Decoder) and model.experts else 0
            case "heads":
                return summary.heads(model)
            case "layers":
                return summary.layers(model)
            case "mlp":
                return (
                    model.mlp.size
                    if isinstance(model, Decoder) and model.mlp
                    else getattr(model, "mlp", None)
                )
            case "parameters":
                return _parameters(at(document, (*_GENERATE, "model")), folder).total
            case "active_parameters":
                return _parameters(at(document, (*_GENERATE, "model")), folder).active
            case _:
                return getattr(model, name, None)

    return fact


MODEL = (
    "layers", "hidden", "heads", "kv_heads", "mlp", "experts", "vocabulary", "context", "parameters",
    "active_parameters",
)  # fmt: skip
FACTS: dict[str, Callable[[Mapping[str, Any], Path], Any]] = {
    "npus": _npus,
    "dp": _dp,
    "microbatches": _microbatches,
    "sequence": _sequence,
    **{name: _of_plan(name) for name in PLAN},
    **{name: _decoder(name) for name in MODEL},
}
"""By name, the function that computes the fact from a study document and its folder."""


def facts_of(document: Mapping[str, Any], names: Iterable[str], folder: Path) -> dict[str, Any]:
    """Return the values of some names of `FACTS` for a study.

    Raises:
        InputError: one has no value.
    """
    found = {}
    for name in names:
        try:
            value = FACTS[name](document, folder)
        except (TypeError, ZeroDivisionError, OverflowError):
            raise InputError(f"{name} is not known: the study's numbers do not fit together") from None
        if value is None:
            raise InputError(f"{name} is not known of this study")
        # Divisions give floats; whole ones compare and print as integers.
        found[name] = int(value) if isinstance(value, float) and value.is_integer() else value
    return found


def depends(fact: str, path: KeyPath) -> bool:
    """Return whether a fact may change with a key of the study."""
    if fact == "npus":
        # Keys of the network that no count depends on; treating them as if would order `let`
        # needlessly, or find circles that are none.
        rates = ("bandwidth", "latency", "per", "up", "down")
        where = len(path) < 2 or path[1] in ("preset", "topology", "network", "collectives")
        return path[0] == "platform" and where and path[-1] not in rates
    if fact == "dp":
        own = [*_GENERATE, "parallel"]
        return (
            depends("npus", path)
            or any(depends(name, path) for name in ("tp", "cp", "pp"))
            or [*path] == [*own, "dp"]
        )
    if fact == "microbatches":
        return any(depends(name, path) for name in ("dp", "batch", "microbatch"))
    below = PLAN[fact][0] if fact in PLAN else ("model",)
    places = [(*_GENERATE, *below)] + ([(*_GENERATE, "sequence")] if fact == "sequence" else [])
    return any(path[: len(place)] == place[: len(path)] for place in places)
