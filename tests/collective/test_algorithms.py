"""One list of names, in the platform, and one definition behind each of them."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from armillary.base import extension
from armillary.base.errors import InputError
from armillary.collective.algorithms import (
    DEFINITIONS,
    add_algorithm,
    algorithms_for,
    find_algorithm,
    rounds_for,
)
from armillary.collective.chunk_order.choose import SCHEDULERS
from armillary.collective.demand import OPERATIONS
from armillary.collective.rounds import ListedAlgorithm, Message
from armillary.platform.collectives import (
    ALGORITHMS,
    ASTRA_SIM_ALGORITHMS,
    BUILT_IN,
    CHOSEN,
    CHUNK_ORDERS,
    known_name,
)


class Hub(ListedAlgorithm):
    """A broadcast in one round."""

    operations = ("broadcast",)

    def cut(self, operation: str, n: int) -> int:
        return 1

    def steps(self, operation: str, n: int, root: int) -> Iterable[Sequence[Message]]:
        yield [Message(root, other, (0,)) for other in range(n) if other != root]


class Odd(Hub):
    operations = ("sum",)


def test_every_name_has_a_definition_and_every_definition_a_name() -> None:
    assert tuple(DEFINITIONS) == tuple(each.name for each in BUILT_IN)
    assert set(ALGORITHMS.built_in) == {*DEFINITIONS, *ASTRA_SIM_ALGORITHMS, *CHOSEN}
    assert tuple(SCHEDULERS) == CHUNK_ORDERS.built_in
    for name in DEFINITIONS:
        assert set(find_algorithm(name).operations) <= set(OPERATIONS)
    assert all(algorithms_for(operation) for operation in OPERATIONS)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("RING", "ring"), ("halving-doubling", "halvingDoubling"), ("double binary tree", "doubleBinaryTree"),
        ("NVLS", "in-switch"), ("sharp", "in-switch"), ("van_de_geijn", "scatterAllGather"), ("direct8", "direct8"),
        ("nothing", "nothing"),
    ],
)  # fmt: skip
def test_other_peoples_names(said: str, meant: str) -> None:
    assert known_name(said, ALGORITHMS) == meant


def test_algorithms_of_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def registered(target: str, name: str = "hub") -> None:
        find_algorithm.cache_clear()
        point = importlib.metadata.EntryPoint(name, target, "armillary.collectives")
        monkeypatch.setattr("armillary.base.extension.entry_points", lambda group: [point])

    registered(f"{__name__}:Hub")
    assert rounds_for("hub", "broadcast", 5, 2).count == 1
    assert "hub" in ALGORITHMS and "hubb" not in ALGORITHMS
    with pytest.raises(InputError, match="hub has no all-reduce"):
        rounds_for("hub", "all-reduce", 5)
    registered("pathlib:Path")
    with pytest.raises(InputError, match="expected a subclass of CollectiveAlgorithm"):
        rounds_for("hub", "broadcast", 5)
    registered("no_such_module:Hub")
    with pytest.raises(InputError, match="'hub' cannot be loaded: No module named"):
        rounds_for("hub", "broadcast", 5)
    registered(f"{__name__}:Odd")
    with pytest.raises(InputError, match="operations: got 'sum'"):
        rounds_for("hub", "broadcast", 5)
    registered("pathlib:Path", "ring")
    assert rounds_for("ring", "all-gather", 4).around  # what is built in comes first


def test_the_reference_names_every_choice() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "study.md").read_text(encoding="utf-8")
    names = {
        *ALGORITHMS.built_in,
        *CHUNK_ORDERS.built_in,
        *(other for each in BUILT_IN for other in each.others),
    }
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []


def test_a_program_adds_an_algorithm_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extension, "_added", {})

    class Star(ListedAlgorithm):
        operations = ("all-reduce",)

        def cut(self, operation: str, n: int) -> int:
            return 1

        def steps(self, operation: str, n: int, root: int) -> Iterator[list[Message]]:
            yield [Message(member, 0, (0,), reduce=True) for member in range(1, n)]
            yield [Message(0, member, (0,)) for member in range(1, n)]

    add_algorithm("of my own", Star)
    add_algorithm("of my own", Star)
    assert len(rounds_for("of my own", "all-reduce", 5).rounds) == 2
    for name, what, why in (
        ("of my own", type("Other", (Star,), {}), "there is one of that name"),
        ("ring", Star, "there is one of that name"),
        ("x", 5, "expected a class of algorithms"),
        ("x", ListedAlgorithm, "abstract"),
        (" ", Star, "expected a text"),
    ):
        with pytest.raises(InputError, match=why):
            add_algorithm(name, what)  # type: ignore[arg-type]
