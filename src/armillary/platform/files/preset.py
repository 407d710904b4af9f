"""Known systems as data files: ``presets/NAME.yaml``, with a source for each number.

::

    title: NVIDIA HGX H100
    platform: {network: [...], npu: {...}}      # as in a study file, and simulated
    topology: {kind: rail-optimised, ...}       # optional: the graph, only drawn; in `platform` it is simulated
    notes: What the platform leaves out.
    numbers:                                    # one entry for each number of the platform
      network.nvlink.bandwidth: {source: "https://…", says: 900 GB/s both ways}
      network.nvlink.latency: {unverified: true, says: a guess}

A dimension is called by its name. A study takes one with ``platform: {preset: NAME}`` and changes it by other
keys beside that: mappings are merged, lists replaced, and ``network`` may map the name of a dimension to keys. A
preset with ``scale`` comes in any size, see `armillary.platform.files.sized`; one with ``software`` says what trains
on it by default. One with a title and ``like`` alone is another by a further name.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from armillary.base.document import Document, read_document
from armillary.base.errors import InputError, nearest
from armillary.base.hints import KeyPath, show
from armillary.base.reading import read_plain

# Shipped with the package, as data files.
_FOLDER = Path(__file__).parent / "presets"
_COUNTED = re.compile(r"^scale:\n(?: .*\n)*? +device: (\S+)", re.MULTILINE)
_MEMORIES = Path(__file__).parent / "memory_presets"


@dataclass(frozen=True)
class Number:
    """One number of a preset: where it stands, its value, and where it comes from.

    Attributes:
        key: E.g. ``network.nvlink.bandwidth``.
        value: As in the file, with its unit.
        source: Public address, or empty if unverified.
        says: What stands there, or why the value was chosen.
    """

    key: str
    value: str
    source: str
    says: str

    @property
    def unverified(self) -> bool:
        """Whether nothing public was found that says so."""
        return not self.source


@dataclass(frozen=True)
class Preset:
    """A known system."""

    name: str
    title: str
    notes: str
    numbers: tuple[Number, ...]
    document: Document

    @property
    def topology(self) -> Any:
        """The description of its graph, or None."""
        return self.document.data.get("topology")

    @property
    def scale(self) -> Mapping[str, Any]:
        """How it grows, see `armillary.platform.files.sized`; empty: it does not."""
        return self.document.data.get("scale") or {}

    @property
    def software(self) -> str:
        """The training software that runs on it by default, "" if it does not say."""
        return str(self.document.data.get("software") or "")


# Cached: presets do not change while the program runs, and errors and completions list them often.
@functools.cache
def preset_names() -> tuple[str, ...]:
    """Return the names of all presets."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


@functools.cache
def device_names() -> Mapping[str, str]:
    """Return the names by which devices are counted -> the preset of their machine."""
    # By one line of each: to parse all of them takes as long as to simulate a step.
    texts = {name: read_plain(_FOLDER / f"{name}.yaml").decode() for name in preset_names()}
    return {found[1]: name for name, text in texts.items() if (found := _COUNTED.search(text))}


def _data(name: str) -> dict[str, Any]:
    found: dict[str, Any] = read_document(_FOLDER / f"{name}.yaml", "preset", "yaml").data
    return found


def is_preset(name: str) -> bool:
    """Return whether `name` is that of a preset, or means one of a size, such as 64xdgx-h100."""
    if name in preset_names():
        return True
    from armillary.platform.files.sized import counted

    return counted(name) is not None


@functools.lru_cache(maxsize=64)
def read_preset(name: str) -> Preset:
    """Return a preset, or one of a size; see `is_preset`.

    Raises:
        InputError: there is none of that name, or none of that size.
    """
    if name in preset_names():
        data = _data(name)
        if "like" not in data:
            return read_numbers(_FOLDER / f"{name}.yaml", "platform")
        return replace(read_preset(data["like"]), name=name, title=data["title"])
    from armillary.platform.files.sized import counted, devices_of, sized

    found = counted(name)
    if found is None:
        raise InputError(f"no preset '{name}'{nearest(name, preset_names())}")
    count, of = found
    growing = {*device_names(), *device_names().values()}
    # Devices, or whole domains, by their own name.
    whole = device_names().get(of, of)
    if whole in preset_names():
        whole = _data(whole).get("like", whole)
    if whole not in device_names().values():
        raise InputError(
            f"machine {name}: '{of}' cannot be counted{nearest(of, sorted(growing))}; expected one of "
            f"{', '.join(sorted(growing))}"
        )
    one = read_preset(whole)
    base = one.document.data["platform"]
    devices = count * (1 if of in device_names() else devices_of(base["network"][0]))
    data = {**one.document.data, "platform": sized(name, base, one.scale, devices)}
    values = dict(leaves(data["platform"]))
    numbers = tuple(
        # What follows from the count is the user's; of all else the source is that of the preset.
        replace(each, value=str(values[each.key])) for each in one.numbers if each.key in values
    )  # fmt: skip
    return replace(
        one,
        name=name,
        title=f"{devices:,} devices: {one.title}",
        numbers=numbers,
        document=replace(one.document, data=data),
    )


def read_numbers(path: Path, key: str) -> Preset:
    """Return a preset file whose numbers under `key` say where they are from."""
    document = read_document(path, "preset", "yaml")
    data = document.data
    scale = data.get("scale") or {}
    values = dict(leaves(data[key])) | dict(leaves({"network": [scale["between"]]} if scale else {}))
    numbers = tuple(
        Number(key, str(values[key]), entry.get("source", ""), entry["says"])
        for key, entry in data["numbers"].items()
    )
    # Notes are folded text in YAML: join the lines.
    return Preset(path.stem, data["title"], " ".join(data["notes"].split()), numbers, document)


def preset_document(name: str) -> Document:
    """Return a platform file that consists of a preset."""
    # A document that names the preset, so that `expand` treats `armillary machine show NAME` as it treats a
    # study.
    return Document(f"preset {name}", {"preset": name}, syntax="yaml")


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield (key, value) of all with a number in a platform mapping; parts of lists go by their names, if any."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from leaves(part, (*path, str(key)))
    # Lists of mappings (dimensions, stages) are keyed by name; other lists count as one value.
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for at, part in enumerate(value):
            name = part.get("name", at) if isinstance(part, Mapping) else at
            yield from leaves(part, (*path, str(name)))
    # A name may hold a digit (dim0, h100-sxm), but is no number.
    elif path[-1:] not in (("name",), ("device",), ("fit",)) and any(char.isdigit() for char in str(value)):
        yield ".".join(path), value


@functools.cache
def memory_names() -> tuple[str, ...]:
    """Return the names of all presets of remote memories."""
    return tuple(sorted(path.stem for path in _MEMORIES.glob("*.yaml")))


def expand(document: Document, path: KeyPath) -> tuple[Document, tuple[str, ...]]:
    """Return the document with the presets that the mapping at `path` names filled in, and warnings about them.

    Raises:
        InputError: There is no such preset, or no such dimension in it.
    """
    # First the platform preset, which may name a memory preset in turn.
    document, warnings = _expand_platform(document, path)
    path = (*path, "remote_memory")
    given = _at(document, path)
    if not isinstance(given, dict) or given.get("preset") is None:
        return document, warnings
    name = document.choice((*path, "preset"), given["preset"], memory_names())
    known = read_document(_MEMORIES / f"{name}.yaml", "preset", "yaml").data
    own = {key: value for key, value in given.items() if key != "preset"}
    # "open" numbers: nothing public says so.
    open_ = [key for key, entry in known["numbers"].items() if entry.get("unverified")]
    if open_:
        warnings += (
            f"memory preset {name}: {len(open_)} of {len(known['numbers'])} numbers are unverified: {', '.join(open_)}",
        )
    whole, unused = _with_nodes(name, merged(known["memory"], own), own)
    return _replaced(document, path, whole), warnings + unused


def _with_nodes(name: str, whole: Any, own: Mapping[str, Any]) -> tuple[Any, tuple[str, ...]]:
    """Return a memory without `npus_per_node` where no stage is per node, and a warning if the file gave that key.

    So presets can be exchanged, in a sweep for instance, without touching other keys. A memory that is described
    without a preset is not excused: there the key and the stage are likely to be one mistake.
    """
    stages = whole.get("stages")
    if "npus_per_node" not in whole or not isinstance(stages, list):
        return whole, ()
    if any(isinstance(stage, Mapping) and stage.get("per") == "node" for stage in stages):
        return whole, ()
    left = {key: value for key, value in whole.items() if key != "npus_per_node"}
    if "npus_per_node" not in own:
        return left, ()
    given = own["npus_per_node"]
    # What is no number is refused with the rest.
    if not isinstance(given, int):
        return whole, ()
    return left, (
        f"remote_memory.npus_per_node {given} has no effect: no stage of memory preset {name} is per node",
    )


def _at(document: Document, path: KeyPath) -> Any:
    given: Any = document.data
    for key in path:
        given = given.get(key) if isinstance(given, dict) else None
    return given


def _replaced(document: Document, path: KeyPath, value: Any) -> Document:
    """Return the document with `value` at `path`."""
    # From the inside out; each step copies one level, as documents are shared.
    for depth in range(len(path) - 1, -1, -1):
        value = {**_at(document, path[:depth]), path[depth]: value}
    return replace(document, data=value)


def _expand_platform(document: Document, path: KeyPath) -> tuple[Document, tuple[str, ...]]:
    given = _at(document, path)
    if not isinstance(given, dict) or given.get("preset") is None:
        return document, ()
    name = given["preset"]
    if not isinstance(name, str) or not is_preset(name):
        name = document.choice((*path, "preset"), name, preset_names())
    try:
        preset = read_preset(name)
    except InputError as error:
        raise document.error((*path, "preset"), str(error)) from None
    base = preset.document.data["platform"]
    # `preset` is no key of a machine and must not reach validation.
    own = {key: value for key, value in given.items() if key != "preset"}
    # By the name of a dimension: changes; a list replaces the whole network.
    if own.get("network") is not None and "topology" in base:
        raise document.error(
            (*path, "network"),
            f"preset {name} has a topology, expected changes of it, e.g. topology: {{hosts: 16}}",
        )
    if isinstance(own.get("network"), dict):
        own["network"] = _dimensions(base["network"], own["network"], document, (*path, "network"))
    elif own.get("topology") is not None and "topology" not in base:
        raise document.error(
            (*path, "topology"), f"preset {name} has a network, expected no topology beside it"
        )
    kept, told = _beside(name, base, given)
    whole: Any = merged(kept, own)
    values = dict(leaves(whole))
    # A number that the user has changed is no longer the preset's to vouch for.
    open_ = [n for n in preset.numbers if n.unverified and str(values.get(n.key)) == n.value]
    warnings = (
        (
            f"preset {name}: {len(open_)} of {len(preset.numbers)} numbers are unverified: "
            f"{', '.join(n.key for n in open_)}",
        )
        if open_
        else ()
    )
    return _replaced(document, path, whole), warnings + told


_ASKS_FOR_ROOFLINE = ("roofline", "efficiency", "kernel_overhead")
_SIZES = ("name", "size", "shape")
_OF_FITS = ("fit", "node", "host")


def _beside(
    name: str, base: Mapping[str, Any], own: Mapping[str, Any]
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return a preset's platform without what gives way to a user's keys, and what gives way in words.

    What was measured of kernels says nothing once the user names another model, nor what was measured of collectives
    about another network, other algorithms, or a network model that moves messages.
    """
    kept, told = dict(base), []
    compute = own["compute"] if isinstance(own.get("compute"), dict) else {}
    if "compute" in base and compute.get("model") is None:
        asked, changed = any(compute.get(key) for key in _ASKS_FOR_ROOFLINE), list(_other_npu(own))
        if compute.get("replay"):
            del kept["compute"]
        elif asked or changed:
            kept["compute"] = {"roofline": True}
        if changed and not asked and not compute.get("replay"):
            told.append(
                f"preset {name}: kernels take a roofline at 100 % of the peaks, not what was measured of "
                f"{base['compute']['device']}: {', '.join(changed)} given"
            )
    elif "compute" in base and compute["model"] != base["compute"]["model"]:
        del kept["compute"]
    collectives = own.get("collectives")
    own_fit = isinstance(collectives, dict) and "fit" in collectives
    if "collectives" in base and not own_fit and (reasons := list(_other_network(own))):
        del kept["collectives"]
        told.append(
            f"preset {name}: collectives take the network's bandwidths and latencies, not fit "
            f"{base['collectives']['fit']}: {', '.join(reasons)} given"
        )
    return kept, tuple(told)


def _other_npu(own: Mapping[str, Any]) -> Iterator[str]:
    """Yield the user's keys that measured kernels would make ineffective."""
    npu = own["npu"] if isinstance(own.get("npu"), dict) else {}
    if npu.get("peak") is not None:
        yield "npu.peak"
    memory = npu.get("memory")
    if isinstance(memory, dict) and memory.get("bandwidth") is not None:
        yield "npu.memory.bandwidth"


def _other_network(own: Mapping[str, Any]) -> Iterator[str]:
    """Yield the user's keys that measured collectives would make ineffective."""
    network, collectives, model = (own.get(key) for key in ("network", "collectives", "network_model"))
    if isinstance(network, list):
        yield "network"
    for part, change in network.items() if isinstance(network, dict) else ():
        changed = change if isinstance(change, dict) else {}
        yield from (f"network.{part}.{key}" for key in changed if key not in _SIZES)
    if isinstance(collectives, dict):
        yield from (f"collectives.{key}" for key in collectives if key not in _OF_FITS)
    if (model.get("name") if isinstance(model, dict) else model) not in (None, "analytical"):
        yield "network_model"


def _dimensions(
    base: list[dict[str, Any]], changes: dict[str, Any], document: Document, path: KeyPath
) -> list[dict[str, Any]]:
    # Presets name all their dimensions.
    names = [part["name"] for part in base]
    for name, change in changes.items():
        if name not in names:
            raise document.error(
                (*path, name),
                f"the preset has no such dimension{nearest(str(name), names)}; it has {', '.join(names)}",
            )
        if not isinstance(change, dict):
            raise document.error((*path, name), f"got {show(change)}, expected a mapping of keys to values")
    found = []
    for part in base:
        change = changes.get(part["name"], {})
        # Either of size and shape replaces the other: both together would be refused.
        other = {"size": "shape", "shape": "size"}
        dropped = {other[key] for key in change if key in other} - change.keys()
        found.append({key: value for key, value in merged(part, change).items() if key not in dropped})
    return found


def merged(base: Any, own: Any) -> Any:
    """Return `base` with what `own` has changed: mappings are merged, all else is replaced."""
    # Lists are replaced as a whole: merging by position would mix entries that have nothing in common.
    if not isinstance(base, dict) or not isinstance(own, dict):
        return own
    return base | {key: merged(base[key], value) if key in base else value for key, value in own.items()}
