"""Answers to questions, as JSON: what the process that simulates does."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from armillary.base.files import make_folder
from armillary.base.json_text import parse_json
from armillary.base.text import on_one_line
from armillary.explore.training import prediction
from armillary.explore.training.levels import APPROXIMATE, how_for
from armillary.explore.training.parts import TITLES
from armillary.explore.training.prediction import Prediction
from armillary.explore.training.scaled import Scaled, scaled
from armillary.explore.training.show import prediction_json
from armillary.explore.training.takeaway import study
from armillary.explore.training.train import at_once, plan_of
from armillary.studio.drawn import machine_with
from armillary.studio.question import Question, command_line, model_file, preset_of, python, read_question
from armillary.workload.models import Model

Progress = Callable[[dict[str, Any]], None]
"""Called with what is to be told before the answer is there."""


@dataclass(frozen=True)
class Found:
    """A step that was predicted, and what it was predicted of."""

    asked: Question
    model: Model
    scaled: Scaled
    step: Prediction
    whole: Callable[[], Prediction]
    """Says what the software adds, too, for which the step is simulated again."""


class Machines:
    """Machines by name and factors; those that were changed have files in a folder of this process."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="armillary-studio-")
        self._count = 0
        self._kept: dict[tuple[str, float, float], Scaled] = {}

    def asked(self, question: Question, fabric: float = 1.0, peak: float = 1.0) -> Scaled:
        """Return the machine of a question, with devices and networks as many times as fast as it asks for."""
        # Of a drawn network its sizes say how many devices there are.
        held: dict[str, Any] | None = None
        if question.network:
            held = {"platform": {"preset": preset_of(question.machine), "network": [*question.network]}}
        elif question.topology:
            held = machine_with(preset_of(question.machine), question.topology)
        fabric, peak = question.fabric * fabric, question.peak * peak
        return self.of(question.machine, fabric, peak, held)

    def of(self, name: str, fabric: float, peak: float, held: Mapping[str, Any] | None = None) -> Scaled:
        """Return a machine, see `armillary.explore.training.scaled`; `held`: of a file instead of by its name."""
        key = (json.dumps(held) if held else name, fabric, peak)
        if key not in self._kept:
            # A folder each: the fits of two machines may have one name.
            self._count += 1
            folder = Path(self._folder.name) / str(self._count)
            make_folder(folder)
            self._kept[key] = scaled(held or name, folder, fabric=fabric, peak=peak)
        return self._kept[key]


machines = Machines()


def find(asked: Question) -> Found:
    """Return the step that is asked for.

    Raises:
        InputError: as `armillary.train`.
    """
    return _found(json.dumps(vars(asked), sort_keys=True))


@lru_cache(maxsize=256)
def _found(text: str) -> Found:
    asked = Question(**parse_json(text, "question"))
    model = asked.read_model()
    machine = machines.asked(asked)
    # Of values that are of no type at all, too, the schema speaks first.
    plan_of({"batch": 1, **asked.plan}, machine.machine)
    how = how_for(machine.machine, asked.graph)
    return Found(asked, model, machine, *at_once(model, machine.machine, asked.plan, asked.software, how))


def headline(data: Mapping[str, Any], tell: Progress) -> dict[str, Any]:
    """Return the answer of `train` but for what the software adds, in half its time."""
    found = find(read_question(data))
    return _answer(found, found.step)


def train(data: Mapping[str, Any], tell: Progress) -> dict[str, Any]:
    """Return a predicted step: what ``armillary train --json`` writes, the same in words, and how to ask for it."""
    found = find(read_question(data))
    return _answer(found, found.whole())


def _answer(found: Found, step: Prediction) -> dict[str, Any]:
    return {
        "prediction": prediction_json(step),
        "headline": prediction.headline(step),
        "approximate": next((each for each in step.assumptions if each.startswith(APPROXIMATE)), None),
        "memory": prediction.memory_text(step),
        "plan": prediction.plan_text(step.plan),
        "titles": TITLES,
        **take_away(found),
    }


def take_away(found: Found) -> dict[str, Any]:
    """Return the command line, the Python and the study that do the same, and the files that they need."""
    asked = found.asked
    machine = "machine.yaml" if found.scaled.files else asked.machine
    held = study(found.step, model_file(asked))
    for part, key in (("compute", "device"), ("collectives", "fit")):
        # Files are beside the study, not in a folder of this process.
        named = held["platform"].get(part) or {}
        if (name := Path(str(named.get(key))).name) in found.scaled.files:
            held["platform"][part] = {**named, key: name}
    return {
        "command": command_line(asked, machine),
        "python": python(asked, machine),
        "study": f"# {on_one_line(prediction.headline(found.step))}\n"
        + yaml.safe_dump(held, sort_keys=False, width=110, allow_unicode=True),
        "files": dict(found.scaled.files),
    }
