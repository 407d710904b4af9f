"""The process that simulates: its limits, and that nothing else is lost when it ends."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from armillary.studio.desk import Answers, BusyError, Desk, RefusedError
from armillary.studio.jobs import Jobs

ASKED: dict[str, Any] = {
    "model": "llama-2-7b",
    "machine": "2xdgx-h100",
    "plan": {"batch": 32, "sequence": 1024},
}


def asked(batch: int) -> dict[str, Any]:
    return {**ASKED, "plan": {**ASKED["plan"], "batch": batch}}


def test_an_answer_that_takes_too_long_is_ended() -> None:
    async def main() -> None:
        desk = Desk(0.05)
        with pytest.raises(RefusedError, match="takes longer than 50 ms"):
            await desk.ask("train", ASKED)
        desk.seconds = 300
        # The next one is answered by a new process.
        assert json.loads(await desk.ask("train", ASKED))["prediction"]["devices"] == 16
        desk.close()

    asyncio.run(main())


def test_who_asks_the_same_waits_for_the_same() -> None:
    async def main() -> None:
        answers = Answers(Desk(300), Desk(300))
        same = await asyncio.gather(*(answers.of("train", asked(64)) for _ in range(20)))
        assert len(set(same)) == 1
        # What was answered is there without a process.
        answers.desk.close()
        assert await answers.of("train", asked(64)) == same[0]
        others = await asyncio.gather(
            *(answers.of("train", asked(2**n)) for n in range(4, 30)), return_exceptions=True
        )
        assert any(isinstance(each, BusyError) for each in others)
        answers.desk.close()

    asyncio.run(main())


def test_what_may_be_asked_next_is_there_when_it_is_asked() -> None:
    async def main() -> None:
        answers = Answers(Desk(300), Desk(300))
        answers.ahead("headline", [asked(0), asked(64), asked(128)])
        while answers.idle.busy or len(answers._kept) < 2:
            await asyncio.sleep(0.01)
        # The process that answers was never started.
        found = json.loads(await answers.of("headline", asked(128)))
        assert answers.desk._process is None and found["prediction"]["plan"]["batch"] == 128
        whole = json.loads(await answers.of("train", asked(128)))["prediction"]
        (more,) = {*whole.pop("assumptions")} - {*found["prediction"].pop("assumptions")}
        assert whole == found["prediction"] and "it adds" in more
        for each in (answers, answers.desk, answers.idle):
            each.close()

    asyncio.run(main())


def test_a_new_step_ends_what_was_to_be_answered_beside_another() -> None:
    async def main() -> None:
        answers = Answers(Desk(300), Desk(300))
        answers.ahead("headline", [asked(64), asked(128), asked(256)])
        await answers.of("headline", asked(512))
        while answers.idle.busy:
            await asyncio.sleep(0.01)
        # One had begun, and ends.
        assert len(answers._kept) <= 2
        for each in (answers, answers.desk, answers.idle):
            each.close()

    asyncio.run(main())


def test_who_goes_away_ends_an_answer_only_for_himself() -> None:
    async def main() -> None:
        answers = Answers(Desk(300), Desk(300))
        one, other = (asyncio.ensure_future(answers.of("train", asked(128))) for _ in range(2))
        await asyncio.sleep(0.2)
        one.cancel()
        assert json.loads(await other)["prediction"]["plan"]["batch"] == 128
        alone = asyncio.ensure_future(answers.of("train", asked(256)))
        await asyncio.sleep(0)
        alone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await alone
        assert json.loads(await answers.of("train", asked(512)))["prediction"]["plan"]["batch"] == 512
        answers.desk.close()

    asyncio.run(main())


def test_a_refused_job_has_failed_and_a_cancelled_one_lets_the_next_begin() -> None:
    async def main() -> None:
        jobs = Jobs(Desk(300))
        wrong = jobs.start("what-if", {**ASKED, "plan": {"batch": 0}})
        first, second = jobs.start("plan", ASKED), jobs.start("what-if", ASKED)
        assert wrong.task and second.task
        await wrong.task
        assert wrong.state == "failed" and wrong.error and "batch" in wrong.error["message"]
        while not first.progress:
            await asyncio.sleep(0.01)
        await jobs.cancel(first)
        assert first.state == "cancelled"
        await second.task
        assert second.state == "done" and json.loads(second.text(0))["result"]["rows"]
        jobs.desk.close()

    asyncio.run(main())


def test_nothing_is_left_of_a_process_that_was_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def main() -> None:
        desk = Desk(300)
        await desk.ask("train", {**ASKED, "fabric": 2.0})
        assert any(tmp_path.rglob("machine.yaml"))
        desk.close()
        assert list(tmp_path.iterdir()) == []

    asyncio.run(main())
