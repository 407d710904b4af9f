"""The key ``generate`` of workloads in study files: a model and a plan whose ranks are the NPUs that it runs on."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, create_model

from armillary.base.document import Document
from armillary.base.errors import InputError
from armillary.base.hints import KeyPath
from armillary.platform.fields import Part, Quantity, first_error
from armillary.platform.files.native import Study, json_schema
from armillary.trace import Trace
from armillary.workload.models import Model, load_model, model_file
from armillary.workload.plan.schema import Plan


@cache
def generate_part() -> type[Part]:
    """Return the layout of the key: `Plan` with a model instead of ranks."""
    # Built from `Plan`, so that every key of a plan is one of study files, too.
    keys: dict[str, Any] = {
        name: (field.annotation, field) for name, field in Plan.model_fields.items() if name != "ranks"
    }
    model = Field(description="A name of `armillary generate list`, or a file, relative to this one.")
    return create_model(
        "Generate",
        __base__=Part,
        __doc__="A model, and how it is spread and run.",
        model=(str, model),
        **keys,
    )


UNITS = {"bytes": "B", "time": "ns"}
"""Kind of a quantity -> unit of its values."""


def keys_of(plan: Plan) -> dict[str, Any]:
    """Return what was given of a plan, as `generate` reads it: quantities with their units."""

    def written(part: Part) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in part.model_fields_set:
            value, field = getattr(part, name), type(part).model_fields[name]
            kinds = [each.kind for each in field.metadata if isinstance(each, Quantity)]
            if isinstance(value, Part):
                found[name] = written(value)
            else:
                found[name] = f"{value} {UNITS[kinds[0]]}" if kinds else value
        return {name: found[name] for name in type(part).model_fields if name in found}

    return written(plan)


def read_request(study: Study) -> tuple[Model, Plan]:
    """Return the model and the plan that a study file asks for.

    Raises:
        InputError: a key or value is wrong; names the file, the line and the key.
    """
    assert study.document is not None
    try:
        found = generate_part().model_validate(study.generate)
    except ValidationError as error:
        raise first_error(study.document, error, _place(study)) from None
    # Only keys that the file has, so that `Plan` fills in its own defaults and checks them together.
    values = {name: getattr(found, name) for name in found.model_fields_set}
    name = values.pop("model")
    return _model(study.document, _place(study), name), Plan(ranks=study.ranks, **values)


def requested(study: Study) -> Trace:
    """Return the workload that a study asks to be generated.

    Raises:
        InputError: the request cannot be read or is impossible; names the file and the line.
    """
    from armillary.workload.generate import generate

    model, plan = read_request(study)
    try:
        return generate(model, plan)
    except InputError as error:
        assert study.document is not None
        raise study.document.error(_place(study), str(error)) from error


def study_schema() -> dict[str, Any]:
    """Return the JSON Schema of a study file, with the keys of ``workload.generate``."""
    schema, own = json_schema(), generate_part().model_json_schema()
    schema["$defs"] |= own.pop("$defs") | {"Generate": own}
    schema["$defs"]["Workload"]["properties"]["generate"] = {"$ref": "#/$defs/Generate"}
    return schema


def _place(study: Study) -> KeyPath:
    return (*study.place, "generate")


def _model(document: Document, place: KeyPath, name: str) -> Model:
    # What a file says wrong is said of that file, and needs no place in the study.
    file = model_file(name, (document.path or Path()).parent)
    if file is not None:
        return load_model(file)
    try:
        return load_model(name)
    except InputError as error:
        raise document.error((*place, "model"), str(error)) from error
