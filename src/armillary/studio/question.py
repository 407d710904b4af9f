"""What is asked of the studio: a model on a machine under a plan; as JSON, as a command line, and as Python."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pprint import pformat
from typing import Any

from armillary.base.document import Document
from armillary.base.errors import InputError, nearest
from armillary.base.hints import show
from armillary.explore.training.levels import HOW
from armillary.explore.training.plan_keys import ALONE, nested
from armillary.platform.files.preset import device_names, preset_names
from armillary.platform.files.sized import counted
from armillary.studio.drawn import MOST_NAME, check_network, check_topology
from armillary.workload.models import Model, load_model, preset_named
from armillary.workload.models import preset_names as model_names
from armillary.workload.models.hugging_face import from_hugging_face
from armillary.workload.plan.options import leaves, option_name

KEYS = ("model", "config", "machine", "network", "topology", "graph", "fabric", "peak", "software", "plan")


@dataclass(frozen=True)
class Question:
    """A step that is asked for.

    Attributes:
        model: Name of a model, or of the file whose content is `config`.
        config: A Hugging Face configuration; None: `model` is one of the package's.
        machine: A preset, which may be counted.
        network: Dimensions that take the place of the preset's network, the innermost first; None: none were drawn.
        topology: A graph that takes its place; None: none was drawn.
        graph: How a graph is taken, see `armillary.explore.training.levels`; "": by its size.
        fabric: Factor of the bandwidth between nodes.
        peak: Factor of the peaks of devices.
        software: What the model is trained with; "": what suits.
        plan: Keys of a plan, in their sections.
    """

    model: str
    config: Mapping[str, Any] | None
    machine: str
    network: Sequence[Mapping[str, Any]] | None
    topology: Mapping[str, Any] | None
    graph: str
    fabric: float
    peak: float
    software: str
    plan: Mapping[str, Any]

    def read_model(self) -> Model:
        """Return the model.

        Raises:
            InputError: the configuration is none.
        """
        return _preset(self.model) if self.config is None else from_hugging_face(self.config)


@lru_cache(maxsize=32)
def _preset(name: str) -> Model:
    return load_model(name)


def read_question(data: object) -> Question:
    """Return what JSON asks.

    Files of this computer cannot be named: a page that somebody got to ask must not find out what is in them.

    Raises:
        InputError: a key is not known, or a value is wrong.
    """
    if not isinstance(data, dict):
        raise InputError(f"question: got {show(data)}, expected a mapping with the keys {', '.join(KEYS)}")
    document = Document("question", data)
    document.check_keys(KEYS)
    model, machine = _name(document, "model"), check_machine(document)
    config = data.get("config")
    if config is not None and not isinstance(config, dict):
        document.reject(("config",), config, "what a config.json holds")
    if config is None and preset_named(model) is None:
        raise InputError(f"model '{model}': no such preset{nearest(model, model_names())}")
    software = data.get("software") or ""
    if software:
        from armillary.explore.training.software import NAMES

        document.choice(("software",), software, NAMES)
    plan = data.get("plan") or {}
    if not isinstance(plan, dict):
        document.reject(("plan",), plan, "a mapping of keys to values")
    fabric, peak = (
        document.number((key,), data.get(key, 1), "a factor", low=0, exclusive=True)
        for key in ("fabric", "peak")
    )
    drawn = check_network(document), check_topology(document)
    graph = data.get("graph") or ""
    if graph:
        document.choice(("graph",), graph, HOW)
    return Question(model, config, machine, *drawn, str(graph), fabric, peak, str(software), nested(plan))


def preset_of(machine: str) -> str:
    """Return the preset that a machine is counted in, or its own name."""
    number = counted(machine)
    name = number[1] if number else machine
    return device_names().get(name, name)


def check_machine(document: Document) -> str:
    """Return the machine of a question.

    Raises:
        InputError: it is no preset, which may be counted.
    """
    machine = _name(document, "machine")
    number = counted(machine)
    # What is counted may be a file, too: not here.
    if (number[1] if number else machine) not in (*preset_names(), *device_names()):
        raise InputError(f"machine '{machine}': no such preset{nearest(machine, preset_names())}")
    return machine


def _name(document: Document, key: str) -> str:
    value = document.require(key)
    if not isinstance(value, str) or not 0 < len(value) <= MOST_NAME:
        document.reject((key,), value, f"a name of at most {MOST_NAME} characters")
    return value


def _given(plan: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield place and value of what a plan gives, in the order of the help page."""
    for path, _ in leaves("training"):
        section = plan if len(path) == 1 else plan.get(str(path[0]))
        if isinstance(section, Mapping) and section.get(str(path[-1])) is not None:
            yield tuple(map(str, path)), section[str(path[-1])]


def command_line(asked: Question, machine: str) -> str:
    """Return the command line that asks the same.

    Args:
        asked: The question.
        machine: The preset, or the file that describes the machine.
    """
    words = ["armillary", "train", model_file(asked), "--machine", machine]
    words += ["--software", asked.software] if asked.software else []
    words += ["--graph", asked.graph] if asked.graph else []
    for path, value in _given(asked.plan):
        name = option_name(path)
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        else:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            words += [f"--{name}", text]
    return shlex.join(words)


def python(asked: Question, machine: str) -> str:
    """Return the Python that asks the same; `machine` as of `command_line`."""
    names: dict[tuple[str, ...], str] = {place: name for name, place in ALONE.items() if name.isidentifier()}
    keys: dict[str, Any] = {}
    for path, value in _given(asked.plan):
        if len(path) == 1 or path in names:
            keys[names.get(path, path[0])] = value
        else:
            keys.setdefault(path[0], {})[path[1]] = value
    words = [repr(model_file(asked)), repr(machine)]
    words += [f"software={asked.software!r}"] if asked.software else []
    words += [f"graph={asked.graph!r}"] if asked.graph else []
    words += [f"{name}={pformat(value, width=80)}" for name, value in keys.items()]
    call = f"found = armillary.train({', '.join(words)})"
    return f"import armillary\n\n{call}\nprint(found.step_time_s, found.interval_s)\n"


def model_file(asked: Question) -> str:
    """Return the model as a command names it: a configuration by its file, here."""
    if asked.config is None:
        return asked.model
    name = asked.model.replace("\\", "/").rpartition("/")[2]
    return f"./{name}" if name.endswith(".json") else f"./{name}.json"
