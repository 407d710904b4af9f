"""The study of a point, read and ready to be simulated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from armillary.base.document import Document
from armillary.base.errors import InputError
from armillary.explore.sweep.facts import known_model, npus_of
from armillary.explore.sweep.keys import at
from armillary.platform.fields import first_error
from armillary.platform.files.native import Study, study_of
from armillary.trace import Trace
from armillary.workload import study_trace
from armillary.workload.generate import generate
from armillary.workload.models import Model
from armillary.workload.plan.request import generate_part
from armillary.workload.plan.schema import Plan


@dataclass(frozen=True, eq=False)
class Prepared:
    """A study, and the model and plan of one that generates its workload."""

    study: Study
    model: Model | None = None
    plan: Plan | None = None

    def trace(self) -> Trace:
        """Return the trace to simulate.

        Raises:
            InputError: it is impossible, or its files are.
        """
        if self.model and self.plan:
            return _last.of(self.model, self.plan)
        # Files are read anew: they may be large, and the next point may name others.
        return study_trace(self.study)


def prepare(document: Mapping[str, Any], path: Path) -> Prepared:
    """Read a study; paths in it are relative to the folder of `path`.

    Raises:
        InputError: it is malformed.
    """
    workload = document.get("workload")
    wish = at(document, ("workload", "generate"))
    own = Document(path.name, dict(document), path, syntax="yaml")
    if not isinstance(workload, Mapping) or not isinstance(wish, Mapping):
        study = study_of(own, path)
        if study.jobs:
            raise InputError(f"{path.name}: jobs: a sweep knows studies of one workload, expected workload")
        return Prepared(study)
    # Many points share everything but the section `generate`.
    frame = json.dumps({**document, "workload": {**workload, "generate": {}}}, sort_keys=True)
    study = replace(_frame(frame, path), generate=dict(wish), document=own)
    try:
        found = _wishes().validate_python(wish)
    except ValidationError as error:
        raise first_error(own, error, ("workload", "generate")) from None
    # Only what was written: `Plan` has defaults of its own, some of which depend on others.
    values = {name: getattr(found, name) for name in found.model_fields_set}
    name = values.pop("model")
    try:
        model = known_model(name, path.parent)
    except InputError as error:
        raise own.error(("workload", "generate", "model"), str(error)) from None
    return Prepared(study, model, Plan(ranks=study.ranks, **values))


def read_anew() -> None:
    """Forget what files held that studies name: a run begins, and they may have changed since the last one."""
    _frame.cache_clear()
    npus_of.cache_clear()


class _LastTrace:
    """Cache of the last trace: neighbours in a sweep often differ in the machine only."""

    def __init__(self) -> None:
        self._made: tuple[Model, Plan, Trace] | None = None

    def of(self, model: Model, plan: Plan) -> Trace:
        """Return the trace of a plan."""
        # The model by identity (a file is read once), the plan by value.
        if self._made is None or self._made[0] is not model or self._made[1] != plan:
            self._made = None  # so that there are never two in memory
            self._made = model, plan, generate(model, plan)
        return self._made[2]


_last = _LastTrace()


@lru_cache(maxsize=1)
def _wishes() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(generate_part())


@lru_cache(maxsize=4096)
def _frame(text: str, path: Path) -> Study:
    return study_of(Document(path.name, json.loads(text), path, syntax="yaml"), path)
