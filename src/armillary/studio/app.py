"""The web application: its pages, and the answers that programs may ask for, too."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from armillary.base.errors import InputError
from armillary.base.json_text import parse_json
from armillary.studio.desk import Answers, BusyError, Desk, RefusedError
from armillary.studio.guard import SENT, App, Guard
from armillary.studio.jobs import KINDS, Job, Jobs
from armillary.studio.openapi import document
from armillary.studio.uploads import Uploads

SECONDS = 120.0
"""That an answer may take."""
JOB_SECONDS = 900.0
"""That a job may take."""
GIVEN_UP = 3.0
"""Seconds that an answer which nobody waits for any more may still take: then it is kept for the next who asks."""
ASKED = ("headline", "train", "topology", "trace", "run", "timeline", "memory", "network")
STATUS = {2: 422, 3: 422, 4: 503}
"""Exit code of a refusal -> status; of a fault of our own it is 500."""
FIRST: Mapping[str, Any] = {
    "model": "llama-3-70b", "machine": "64xdgx-h100", "fabric": 1, "peak": 1, "software": "",
    "plan": {"batch": 1024},
}  # fmt: skip
"""What the page asks first: it is answered while the browser starts."""
STATIC = {
    "/": ("studio.html", "text/html; charset=utf-8"),
    "/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
    "/studio.js": ("studio.js", "text/javascript; charset=utf-8"),
    "/studio.css": ("studio.css", "text/css; charset=utf-8"),
    "/THIRD-PARTY.txt": ("THIRD-PARTY.txt", "text/plain; charset=utf-8"),
}


def studio(token: str, hosts: tuple[str, ...], *, warm: bool = True) -> App:
    """Return the application.

    Args:
        token: What who asks must know.
        hosts: Names and ports by which it is called, such as ``127.0.0.1:8765``.
        warm: Whether it begins by answering what the page asks first.
    """
    desk, job_desk = Desk(SECONDS), Desk(JOB_SECONDS)
    answers, jobs, uploads = Answers(desk, job_desk), Jobs(job_desk), Uploads()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        first = asyncio.ensure_future(_first(answers)) if warm else None
        try:
            yield
        finally:
            if first:
                first.cancel()
            for each in (answers, desk, job_desk, uploads):
                each.close()

    async def asked(request: Request) -> Response:
        kind = request.url.path.rpartition("/")[2]
        with suppress(asyncio.CancelledError):
            return await _until_gone(request, answers.of(kind, _question(await request.body(), uploads)))
        return Response(status_code=499)

    async def ahead(request: Request) -> Response:
        found = _question(await request.body(), uploads).get("questions")
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise InputError("questions: expected a list of questions")
        answers.ahead("headline", found)
        return Response(status_code=202)

    async def send(request: Request) -> Response:
        with suppress(ClientDisconnect):
            name = request.query_params.get("name", "")
            return _json(json.dumps(await uploads.keep(name, request.stream())).encode(), 201)
        return Response(status_code=499)

    async def catalogue(request: Request) -> Response:
        return _json(await answers.of("catalogue", {}))

    async def start(request: Request) -> Response:
        question = _question(await request.body(), uploads)
        kind = question.pop("kind", None)
        if kind not in KINDS:
            raise InputError(f"kind: got {kind!r:.60}, expected {' or '.join(KINDS)}")
        return _json(jobs.start(kind, question).text(0), 202)

    async def look(request: Request) -> Response:
        since = request.query_params.get("since", "0")
        return _json(_job(request).text(int(since) if since.isdecimal() and len(since) < 10 else 0))

    async def cancel(request: Request) -> Response:
        job = _job(request)
        await jobs.cancel(job)
        return _json(job.text(len(job.events)))

    def _job(request: Request) -> Job:
        job = jobs.get(request.path_params["number"])
        if job is None:
            raise LookupError("no such job")
        return job

    async def described(request: Request) -> Response:
        return _json(json.dumps(document()).encode())

    routes = [
        *(Route(path, _static(*each)) for path, each in STATIC.items()),
        *(Route(f"/api/{kind}", asked, methods=["POST"]) for kind in ASKED),
        Route("/api/ahead", ahead, methods=["POST"]),
        Route("/api/catalogue", catalogue),
        Route(SENT, send, methods=["PUT"]),
        Route("/api/jobs", start, methods=["POST"]),
        Route("/api/jobs/{number}", look),
        Route("/api/jobs/{number}", cancel, methods=["DELETE"]),
        Route("/api/openapi.json", described),
    ]
    handlers: dict[Any, Any] = {
        InputError: lambda request, error: _refusal(str(error), 422, 2),
        RefusedError: lambda request, error: _refusal(
            str(error), STATUS.get(error.exit_code, 500), error.exit_code
        ),
        BusyError: lambda request, error: _refusal("too many questions wait", 503, 4),
        LookupError: lambda request, error: _refusal(str(error), 404, 2),
    }
    return Guard(Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers), token, hosts)


async def _first(answers: Answers) -> None:
    with suppress(RefusedError, BusyError):
        await answers.of("catalogue", {})
        await answers.of("headline", FIRST)
        await answers.of("train", FIRST)
        # The process that answers ahead has begun when it is first needed.
        answers.ahead("headline", [{**FIRST, "plan": {"batch": 2048}}])


async def _until_gone(request: Request, answer: Any) -> Response:
    """Return an answer; when who asked goes away, it has `GIVEN_UP` seconds left."""
    task = asyncio.ensure_future(answer)
    try:
        while not (await asyncio.wait([task], timeout=0.25))[0]:
            if await request.is_disconnected():
                await asyncio.wait([task], timeout=GIVEN_UP)
                break
        if task.done():
            return _json(task.result())
        raise asyncio.CancelledError
    finally:
        if not task.done():
            task.cancel()


def _question(body: bytes, uploads: Uploads) -> dict[str, Any]:
    try:
        found = parse_json(body, "question")
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(f"question: no JSON: {error}") from None
    if not isinstance(found, dict):
        raise InputError("question: expected a mapping of keys to values")
    return uploads.found(found)


def _json(text: bytes, status: int = 200) -> Response:
    return Response(text, status, media_type="application/json")


def _refusal(message: str, status: int, exit_code: int) -> Response:
    return _json(json.dumps({"error": message, "exit_code": exit_code}).encode(), status)


def _static(name: str, kind: str) -> Callable[[Request], Any]:
    content = (files("armillary.web") if name != "studio.html" else files("armillary.studio")).joinpath(name)

    async def static(request: Request) -> Response:
        return Response(content.read_bytes(), media_type=kind)

    return static
