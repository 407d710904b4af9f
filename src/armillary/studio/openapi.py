"""The description of what programs may ask, in OpenAPI 3.1."""

from __future__ import annotations

from typing import Any

from armillary.base import VERSION

_TEXT: dict[str, Any] = {"type": "string"}
_NUMBER: dict[str, Any] = {"type": "number"}
_COUNT: dict[str, Any] = {"type": "integer"}
_MAP: dict[str, Any] = {"type": "object"}
_LIST: dict[str, Any] = {"type": "array"}


def _object(needed: tuple[str, ...] = (), **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties} | ({"required": list(needed)} if needed else {})


def _said(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "description": text}


_QUESTION = _object(
    ("model", "machine", "plan"),
    model=_said("Name of a model, or of the file that `config` holds.", _TEXT),
    config=_said("What a Hugging Face config.json holds, instead of a model of the package.", _MAP),
    machine=_said("A preset, which may be counted: 64xdgx-h100.", _TEXT),
    network=_said(
        "Dimensions instead of the preset's, the innermost first: {name, topology, size, bandwidth, latency}.",
        _LIST,
    ),
    topology=_said(
        "A graph instead of the preset's network, as platform.topology of a study file; kinds and keys that name files "
        "are refused.",
        _MAP,
    ),
    graph=_said(
        "How a graph is taken: messages (each moves over the links) or levels (approximate, and at once); empty: by "
        "its size.",
        _TEXT,
    ),
    fabric=_said("Factor of the bandwidth between nodes, 1/64 to 64.", _NUMBER),
    peak=_said("Factor of the peaks of devices, 1/64 to 64.", _NUMBER),
    software=_said("What it is trained with; empty: what suits.", _TEXT),
    plan=_said("Keys of `workload.generate` of a study but for the model; `batch` is needed.", _MAP),
)
_DROPPED = _object(
    ("trace",),
    trace=_said("The files of a trace, each {name, id}, of which ids come from /api/files.", _LIST),
    from_one_rank=_said(
        "Whether all ranks do what the one of the file did: for PyTorch's.", {"type": "boolean"}
    ),
    machine=_said("A preset, which may be counted; empty: all takes its recorded time.", _TEXT),
    fabric=_said("Factor of the bandwidth between nodes, 1/64 to 64.", _NUMBER),
    peak=_said("Factor of the peaks of devices, 1/64 to 64.", _NUMBER),
)
_GRAPH = _object(
    topology=_said("As of a question.", _MAP),
    machine=_said("Instead: a preset whose network is a graph.", _TEXT),
)
_PREDICTION = _object(
    model=_TEXT, machine=_TEXT, devices=_COUNT, software=_TEXT,
    step_time_s=_said("s", _NUMBER),
    interval_s=_said("Between which 9 of 10 measured steps are expected, s.", _LIST),
    mfu=_said("Share of the peak; null: not known.", _NUMBER),
    tokens_per_s=_NUMBER, memory=_said("Bytes of the fullest rank.", _MAP),
    parts_s=_said("What the step consists of, s.", _MAP),
    limits=_TEXT, plan=_MAP, assumptions=_LIST,
)  # fmt: skip
_JOB = _object(
    id=_TEXT, kind=_TEXT,
    state=_said("waiting, running, done, failed or cancelled.", _TEXT),
    progress=_said("what, done, of.", _MAP),
    events=_said("From number `since` on: the points of a search, the rows of what-if.", _LIST),
    next=_said("The `since` of the next look.", _COUNT),
    result=_said("When it is done: of plan what `armillary plan --json` writes.", _MAP),
    error=_said("When it has failed.", _MAP),
)  # fmt: skip
_REFUSAL = _object(error=_TEXT, exit_code=_said("That of the command with the same words.", _COUNT))


def _answer(text: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    content = {"application/json": {"schema": schema or _MAP}}
    refused = {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
    return {
        "200": {"description": text, "content": content},
        "422": {"description": "A value is wrong: the words of the command line.", "content": refused},
        "503": {"description": "Too much time, memory, or too many questions.", "content": refused},
    }


_MODEL: dict[str, Any] = {"$ref": "#/components/schemas/Question"}
_FILES: dict[str, Any] = {"$ref": "#/components/schemas/Dropped"}
_EITHER: dict[str, Any] = {"oneOf": [_MODEL, _FILES]}


def _ask(
    summary: str, schema: dict[str, Any], question: dict[str, Any] = _MODEL, **more: dict[str, Any]
) -> dict[str, Any]:
    if more:
        question = {"allOf": [question, {"type": "object", "properties": more}]}
    body = {"required": True, "content": {"application/json": {"schema": question}}}
    return {"post": {"summary": summary, "requestBody": body, "responses": _answer(summary, schema)}}


def document() -> dict[str, Any]:
    """Return the description of the API."""
    job = {"$ref": "#/components/schemas/Job"}
    number = {"name": "number", "in": "path", "required": True, "schema": _TEXT}
    since = {"name": "since", "in": "query", "schema": _COUNT, "description": "First event that is wanted."}
    train = _object(
        prediction={"$ref": "#/components/schemas/Prediction"},
        headline=_TEXT, memory=_TEXT, titles=_MAP,
        approximate=_said("What is approximate of a graph that is taken by its levels; else null.", _TEXT),
        plan=_said("The plan in a line.", _TEXT),
        command=_said("The command line that asks the same.", _TEXT),
        python=_TEXT, study=_said("A study file, YAML.", _TEXT),
        files=_said("Name -> text of the files that the command needs.", _MAP),
    )  # fmt: skip
    seconds = {"from": _said("s", _NUMBER), "to": _said("s", _NUMBER)}
    sent = _object(name=_TEXT, id=_said("By which questions name it.", _TEXT), bytes=_COUNT)
    name = {"name": "name", "in": "query", "required": True, "schema": _TEXT, "description": "Of the file."}
    content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    put: dict[str, Any] = {
        "summary": "Send a file, which is kept until the studio ends or newer ones need the room.",
        "parameters": [name], "requestBody": {"required": True, "content": content},
        "responses": _answer("What was kept.", sent),
    }  # fmt: skip
    put["responses"] = {"201": put["responses"].pop("200"), **put["responses"]}
    about = _object(
        kind=_said("chakra or pytorch.", _TEXT), ranks=_COUNT, world=_said("Ranks of the run it is of.", _COUNT),
        nodes=_COUNT, recorded=_said("Whether all communication has a recorded time.", {"type": "boolean"}),
    )  # fmt: skip
    graph = _object(
        npus=_COUNT, nodes=_COUNT, links=_said("One way each.", _COUNT),
        panels=_said("Drawings: title, notes, marks and lines in a square from -1 to 1.", _LIST),
        edges=_said("The same with kind: edges; null: too many links.", _MAP),
    )  # fmt: skip
    ahead = _ask("Answer headlines that may be asked next, while nothing else is to do.", _MAP)["post"]
    questions = _object(("questions",), questions={"type": "array", "items": _MODEL})
    ahead["requestBody"]["content"]["application/json"]["schema"] = questions
    ahead["responses"] = {"202": {"description": "It will, or what is asked then comes first."}}
    start = _ask("Begin a job.", job, _EITHER, kind=_said("plan or what-if.", _TEXT))
    start["post"]["responses"] = {"202": start["post"]["responses"].pop("200"), **start["post"]["responses"]}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Armillary studio", "version": VERSION, "license": {"name": "Apache-2.0"}},
        "security": [{"token": []}],
        "paths": {
            "/api/catalogue": {
                "get": {"summary": "What can be asked.", "responses": _answer("Models, machines, keys of a plan.")}
            },
            "/api/headline": _ask(
                "The same as train but for what the software adds, among the assumptions: in half the time.", train
            ),
            "/api/train": _ask("Predict a training step.", train),
            "/api/ahead": {"post": ahead},
            "/api/topology": _ask(
                "What a graph looks like, and its links one by one where they are few.", graph, _GRAPH
            ),
            "/api/files": {"put": put},
            "/api/trace": _ask("What the files of a trace are.", about, _FILES),
            "/api/run": _ask("Simulate a trace; the keys are those of a training step, and why.", train, _FILES),
            "/api/timeline": _ask("What each class of ranks does when.", _MAP, _EITHER, **seconds),
            "/api/memory": _ask("What the fullest rank holds, at its peak and over a step.", _MAP),
            "/api/network": _ask("How collectives use each dimension of the network.", _MAP, _EITHER),
            "/api/jobs": start,
            "/api/jobs/{number}": {
                "parameters": [number],
                "get": {
                    "summary": "How far a job is.", "parameters": [since], "responses": _answer("The job.", job),
                },
                "delete": {"summary": "End a job.", "responses": _answer("The job.", job)},
            },
            "/api/openapi.json": {"get": {"summary": "This document.", "responses": _answer("OpenAPI.")}},
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Question": _QUESTION, "Dropped": _DROPPED, "Prediction": _PREDICTION, "Job": _JOB, "Refusal": _REFUSAL,
            },
        },
    }  # fmt: skip
