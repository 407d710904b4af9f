"""What can be asked: models, machines, software, and the values of a plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from armillary.base.allowed import limit
from armillary.explore.training.software import NAMES
from armillary.platform.files.preset import device_names, preset_names, read_preset
from armillary.platform.files.sized import counted, devices_of
from armillary.platform.network import TOPOLOGIES
from armillary.studio.drawn import MOST_DIMENSIONS, MOST_LINKS, graph_kinds
from armillary.studio.uploads import MOST_FILE
from armillary.workload.models import load_model
from armillary.workload.models import preset_names as model_names
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.options import heading, leaves, option_name

_BEGIN = {"hosts": 4, "leaves": 2}
"""How much of a graph the page begins with: messages over one move one by one, and a step of 32 devices takes seconds
of CPU, one of 1,024 more than a question may."""


def catalogue(data: Mapping[str, Any], tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Return the names and keys that `armillary.studio.question` takes, with what they mean."""
    return {
        "models": [_model(name) for name in model_names()],
        "machines": [each for name in preset_names() if (each := _machine(name))],
        "software": list(NAMES),
        "topologies": {name: each.shaped for name, each in TOPOLOGIES.items()},
        "most_dimensions": MOST_DIMENSIONS,
        "graphs": graph_kinds(),
        "most_links": MOST_LINKS,
        "most_file_bytes": int(min(limit(MOST_FILE), 2**53)),
        "plan": [
            {
                "path": list(path),
                "option": f"--{option_name(path)}",
                "heading": heading(path),
                **_value(schema),
            }
            for path, schema in leaves("training")
        ],
    }


def _model(name: str) -> dict[str, Any]:
    model = load_model(name)
    found: dict[str, Any] = {"name": name, "kind": model.kind}
    if isinstance(model, Decoder):
        found |= {
            "layers": model.layers, "heads": model.attention.heads, "context": model.context,
            "experts": model.experts.count if model.experts else 0,
        }  # fmt: skip
    return found


def _machine(name: str) -> dict[str, Any] | None:
    """Return a preset on which a step can be predicted, or None: nothing says how long its kernels take."""
    preset = read_preset(name)
    platform = preset.document.data["platform"]
    if not platform.get("compute"):
        return None
    assert counted(name) is None
    if "topology" in platform:
        graph = {
            key: value for key, value in platform["topology"].items() if key not in ("assumed", "failures")
        }
        return {
            "name": name, "title": preset.title, "devices": math.prod(_sizes(graph)), "domain": _sizes(graph)[-1],
            "counted": False, "device": None, "dimensions": [], "network": [], "between": None,
            "topology": graph, "begin": {key: min(most, graph[key]) for key, most in _BEGIN.items() if key in graph},
        }  # fmt: skip
    sizes = [devices_of(each) for each in platform["network"]]
    return {
        "name": name, "title": preset.title, "devices": math.prod(sizes), "domain": sizes[0],
        "counted": name in device_names().values(), "device": preset.scale.get("device"),
        "dimensions": [each["name"] for each in platform["network"]],
        "network": platform["network"], "between": preset.scale.get("between"), "topology": None, "begin": {},
    }  # fmt: skip


def _sizes(graph: Mapping[str, Any]) -> list[int]:
    """Return the sizes of a preset's graph whose product is how many devices it has, the innermost last."""
    if "shape" in graph:
        return list(graph["shape"])
    return (
        [graph["hosts"], graph["npus_per_host"]]
        if "hosts" in graph
        else [graph["leaves"], graph["npus_per_leaf"]]
    )


def _value(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a page needs of the JSON schema of a value."""
    one = schema["anyOf"][0] if "anyOf" in schema else schema
    return {
        "help": schema.get("description", ""),
        "type": "choice" if "enum" in one else one.get("type", "string"),
        "choices": one.get("enum", []),
        "most": one.get("maximum"),
        "default": schema.get("default"),
    }
