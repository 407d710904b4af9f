"""The conformance suite holds for all that is built in, and finds what is wrong with others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from armillary.base.extension import ExtensionPoint
from armillary.collective.algorithms import DEFINITIONS, find_algorithm
from armillary.collective.chunk_order.alone import Problem
from armillary.collective.chunk_order.choose import SCHEDULERS, find_scheduler
from armillary.collective.chunk_order.greedy import Chunks
from armillary.collective.rounds import ListedAlgorithm, Message, Moves, Round
from armillary.testing.collective import check_chunk_order, check_collective, sample_problems


class Gather(ListedAlgorithm):
    """An all-gather in one round."""

    operations = ("all-gather",)

    def cut(self, operation: str, n: int) -> int:
        return 1

    def steps(self, operation: str, n: int, root: int) -> Iterable[Sequence[Message]]:
        yield [Message(i, j, (i,)) for i in range(n) for j in range(n) if i != j]


class Forgets(Gather):
    def steps(self, operation: str, n: int, root: int) -> Iterable[Sequence[Message]]:
        yield [Message(i, (i + 1) % n, (i,)) for i in range(n)]


class Lies(Gather):
    def rounds(self, operation: str, n: int, root: int, chunks: int) -> tuple[Round, ...]:
        return tuple(
            Round(n, Moves.of(r.source, r.target, 1, 2)) for r in super().rounds(operation, n, root, chunks)
        )


class Foresees(Gather):
    def steps(self, operation: str, n: int, root: int) -> Iterable[Sequence[Message]]:
        yield [Message(i, j, ((i + 1) % n,)) for i in range(n) for j in range(n) if i != j]


class Changes(Gather):
    def __init__(self) -> None:
        self.calls = 0

    def steps(self, operation: str, n: int, root: int) -> Iterable[Sequence[Message]]:
        self.calls += 1
        members = range(n) if self.calls % 2 else range(n)[::-1]
        yield [Message(i, j, (i,)) for i in members for j in range(n) if i != j]


class Never(Gather):
    def refuses(self, operation: str, n: int) -> str:
        return "expected another day"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterable[type[pytest.MonkeyPatch]]:
    """Let "mine" be an algorithm of another package."""

    def install(kind: type) -> None:
        class Point:
            name = "mine"

            def load(self) -> type:
                return kind

        monkeypatch.setattr(ExtensionPoint, "others", lambda point: {"mine": Point()})
        find_algorithm.cache_clear()

    yield install  # type: ignore[misc]
    find_algorithm.cache_clear()


@pytest.mark.parametrize("name", DEFINITIONS)
def test_every_algorithm_that_is_built_in(name: str) -> None:
    check_collective(name, (2, 3, 4, 7, 8))


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFINITIONS)
def test_every_algorithm_that_is_built_in_for_many_members(name: str) -> None:
    check_collective(name)


def test_an_algorithm_of_another_package(installed) -> None:  # type: ignore[no-untyped-def]
    installed(Gather)
    check_collective("mine", range(2, 9))


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (Forgets, "ends with a wrong block"),
        (Lies, "is 1/2 of D, its blocks 1"),
        (Foresees, "which it does not have"),
        (Changes, "differ when asked again"),
        (Never, "refuses every number of members"),
    ],
)
def test_what_is_wrong_is_found(installed, kind: type, problem: str) -> None:  # type: ignore[no-untyped-def]
    installed(kind)
    with pytest.raises(AssertionError, match=problem):
        check_collective("mine", range(3, 9))


@pytest.mark.parametrize("name", [name for name in SCHEDULERS if name != "optimal"])
def test_every_chunk_scheduler_that_is_built_in(name: str) -> None:
    check_chunk_order(find_scheduler(name), sample_problems()[::5])


def test_the_search_for_an_order() -> None:
    check_chunk_order(find_scheduler("optimal"), sample_problems()[2:4])


def loses(problem: Problem) -> Chunks:
    return [(size // 2 + 1, tuple(range(len(problem.levels)))) for size in problem.sizes]


def skips(problem: Problem) -> Chunks:
    return [(size, (0,)) for size in problem.sizes]


@pytest.mark.parametrize(
    ("scheduler", "problem"), [(loses, "bytes in all, expected"), (skips, "visits the levels")]
)
def test_plans_that_are_none_are_found(scheduler, problem: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(AssertionError, match=problem):
        check_chunk_order(scheduler)
