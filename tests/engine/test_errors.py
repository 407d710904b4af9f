"""Bad workloads: each gives one clear error, or a table of who waits for what; none hangs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import armillary
from armillary.base.errors import InputError, StuckError
from armillary.platform.model import Platform
from armillary.trace import CollectiveType, Node, NodeType, Trace

Attrs = dict[str, tuple[str, Any]]
Make = Callable[..., Platform]
ROOFLINE = {"roofline_enabled": 1, "peak_perf": 1}
PER_NPU = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 1, "remote-mem-bw": 1}


def node(kind: NodeType, number: int = 0, after: Sequence[int] = (), micros: int = 0, **attrs: Any) -> Node:
    """A node; an attribute is (kind, value), or None to leave it out."""
    given = [(name, *value) for name, value in attrs.items() if value is not None]
    return Node(number, kind.name[:4].lower(), kind, data_deps=after, duration_micros=micros, attrs=given)


def compute(number: int = 0, after: Sequence[int] = (), micros: int = 1, **attrs: Any) -> Node:
    return node(NodeType.COMP_NODE, number, after, micros, **attrs)


def collective(number: int = 0, after: Sequence[int] = (), **attrs: Any) -> Node:
    usual: dict[str, Any] = {"comm_type": ("int64", 0), "comm_size": ("int64", 1000)}
    return node(NodeType.COMM_COLL_NODE, number, after, **{**usual, **attrs})


def send(peer: int | None, size: int = 100, tag: int = 0, number: int = 0, **more: Any) -> Node:
    ends = None if peer is None else ("int32", peer)
    attrs = {"comm_size": ("int64", size), "comm_tag": ("int32", tag), "comm_dst": ends, **more}
    return node(NodeType.COMM_SEND_NODE, number, more.pop("after", ()), **attrs)


def recv(peer: int | None, size: int = 100, tag: int = 0, number: int = 0) -> Node:
    ends = None if peer is None else ("int32", peer)
    return node(
        NodeType.COMM_RECV_NODE, number, comm_size=("int64", size), comm_tag=("int32", tag), comm_src=ends
    )


def memory(size: int = 8) -> Node:
    return node(NodeType.MEM_LOAD_NODE, tensor_size=("uint64", size))


def groups(*text: str) -> Node:
    values = "['[" + ", ".join(text) + "]']"
    return Node(0, "groups", NodeType.METADATA_NODE, inputs=(values, "", ""))


def kind(which: CollectiveType) -> dict[str, Any]:
    return {"comm_type": ("int64", int(which))}


BAD: dict[str, tuple[Sequence[Node] | dict[int, Sequence[Node]], dict[str, Any], str]] = {
    "cycle": ([compute(0, [1]), compute(1, [0])], {}, "dependency cycle of 2 nodes"),
    "cycle of one": ([compute(0, [0])], {}, "dependency cycle of 1 node"),
    "cycle off the roots": ([compute(0), compute(1, [2, 0]), compute(2, [1])], {}, "dependency cycle of 2 nodes"),
    "duplicate ids": ([compute(0), compute(0)], {}, "1 node has the id of an earlier node"),
    "unknown node type": ([Node(0, "x", 42)], {}, "node 0 'x' has an unknown node type"),
    "no comm_type": ([collective(comm_type=None)], {}, "node 0 'comm' has no comm_type; expected ALL_REDUCE"),
    "unknown collective": ([collective(comm_type=("int64", 99))], {}, "(99); expected ALL_REDUCE, ALL_GATHER"),
    "reduce": ([collective(**kind(CollectiveType.REDUCE))], {}, "does not model (REDUCE)"),
    "barrier": ([collective(**kind(CollectiveType.BARRIER))], {}, "does not model (BARRIER)"),
    "collective on the CPU": ([collective(is_cpu_op=("bool", True))], {}, "communication node with is_cpu_op set"),
    "send on the CPU": ({0: [send(1, is_cpu_op=("bool", True))]}, {}, "communication node with is_cpu_op set"),
    "negative size": ([collective(comm_size=("int64", -1))], {}, "has comm_size -1; expected 0 to"),
    "size 2**63": ([collective(comm_size=("uint64", 2**63))], {}, "'comm_size' is 9223372036854775808"),
    "size 2**62": ([collective(comm_size=("int64", 2**62))], {}, "has comm_size 4611686018427387904"),
    "size nan": ([collective(comm_size=("double", float("nan")))], {}, "'comm_size' is of kind double"),
    "size text": ([collective(comm_size=("string", "1 MB"))], {}, "'comm_size' is of kind string"),
    "gathers too much": (
        [collective(**kind(CollectiveType.ALL_GATHER), comm_size=("int64", 2**59))],
        {"preferred_dataset_splits": 1}, "gathers 2305843009213693952 bytes",
    ),
    "too many chunks": ([collective()], {"preferred_dataset_splits": 2**30}, "is split into 1073741824 chunks"),
    "a network too slow": ([collective()], {"bandwidth": 1e-30}, "a message takes"),
    "a local memory too slow": ([collective()], {"local_mem_bw": 1e-300}, "a reduction takes"),
    "duration 2**63": ([compute(micros=2**63)], {}, "has duration_micros 9223372036854775808"),
    "durations that add up": (
        [compute(i, [i - 1] if i else [], 2**49) for i in range(40)], {}, "expected less than 4.61e+18 ns",
    ),
    "peer out of range": ({0: [send(9)]}, {}, "rank 0: node 0 'comm' has comm_dst 9; expected a rank from 0 to 3"),
    "peer negative": ({0: [recv(-2)]}, {}, "has comm_src -2; expected a rank from 0 to 3"),
    "no comm_dst": ({0: [send(None)]}, {}, "has no comm_dst; expected a rank from 0 to 3"),
    "no comm_src": ({0: [recv(None)]}, {}, "has no comm_src; expected a rank from 0 to 3"),
    "sends for another": ({0: [send(2, comm_src=("int32", 1))]}, {}, "has comm_src 1; expected 0, the rank that runs"),
    "sends to itself": ({0: [send(0)]}, {}, "on rank 0 has itself as peer"),
    "sends nothing": ({0: [send(1, 0)], 1: [recv(0, 0)]}, {}, "moves 0 bytes; expected a comm_size above 0"),
    "no such group": ([collective(pg_name=("string", "7"))], {"groups": {"1": [0, 1]}}, "pg_name '7'; expected the id"),
    "no groups at all": ([collective(pg_name=("string", "7"))], {}, "the id of a group (there are none)"),
    "group by name": ([collective(pg_name=("string", "dp"))], {"groups": {"1": [0, 1]}}, "(groups: 1)"),
    "not a member": (
        [collective(pg_name=("string", "1"))], {"groups": {"1": [0, 1]}}, "rank 2 is not in group 1",
    ),
    "no remote memory": ([memory()], {}, "accesses remote memory, but the machine has none"),
    "too much remote memory": ([memory(2**62)], {"memory": PER_NPU}, "has tensor_size 4611686018427387904"),
    "remote memory too slow": ([memory()], {"memory": {**PER_NPU, "remote-mem-latency": 2**62}}, "remote memory takes"),
    "roofline without operations": ([compute(tensor_size=("uint64", 8))], ROOFLINE, "has no num_ops"),
    "roofline without bytes": ([compute(num_ops=("int64", 8))], ROOFLINE, "has no tensor_size"),
    "roofline negative": (
        [compute(num_ops=("int64", -8), tensor_size=("uint64", 8))], ROOFLINE, "has a negative num_ops or tensor_size",
    ),
    "roofline without end": (
        [compute(num_ops=("int64", 2**62), tensor_size=("uint64", 8))], {**ROOFLINE, "peak_perf": 1e-9}, "4.61e+24 ns",
    ),
    "roofline without bandwidth": (
        [compute(num_ops=("int64", 2), tensor_size=("uint64", 8))], {**ROOFLINE, "local_mem_bw": 0}, "local-mem-bw",
    ),
    "groups are no JSON": ([groups('{"pg_name": 1,')], {}, "process groups cannot be read"),
    "group is no number": ([groups('{"pg_name": "dp", "ranks": [0]}')], {}, "process groups cannot be read"),
    "group without ranks": ([groups('{"pg_name": "1"}')], {}, "process groups cannot be read ('ranks')"),
    "ranks are text": ([groups('{"pg_name": "1", "ranks": "01"}')], {}, "ranks of group 1 are '01'"),
    "rank out of range": ([groups('{"pg_name": "1", "ranks": [0, 9]}')], {}, "group 1 has rank 9; expected ranks"),
    "rank twice": ([groups('{"pg_name": "1", "ranks": [0, 0]}')], {}, "group 1 is [0, 0]; expected each rank once"),
    "two definitions": (
        {0: [groups('{"pg_name": "1", "ranks": [0, 1]}')], 1: [groups('{"pg_name": "1", "ranks": [0, 2]}')]},
        {}, "group 1 is [0, 2], but another definition says [0, 1]",
    ),
    "definition against the file": (
        [groups('{"pg_name": "1", "ranks": [0, 1]}')], {"groups": {"1": [0, 2]}}, "another definition says [0, 2]",
    ),
    "no all-to-all": (
        [collective(**kind(CollectiveType.ALL_TO_ALL))], {"algorithm": "halvingDoubling"},
        "halvingDoubling all-to-all: this algorithm has none",
    ),
}  # fmt: skip

IN_A_GROUP = {"groups": {"1": [0, 1], "2": [1, 0]}}
STUCK: dict[str, tuple[dict[int, Sequence[Node]], dict[str, Any], tuple[str, ...]]] = {
    "a receive without its send": (
        {1: [recv(0), compute(1, [0])]}, {},
        ("1 of 4 ranks", "rank 0 to send it 100 bytes with tag 0", "blocked  node 0 'comm'"),
    ),
    "a send without its receive": (
        {0: [send(1)]}, {"cli": ["--rendezvous-protocol=true"]}, ("rank 1 to receive from it 100 bytes with tag 0",),
    ),
    "another size": ({0: [send(1, 10)], 1: [recv(0, 11)]}, {}, ("rank 0 to send it 11 bytes",)),
    "another tag": ({0: [send(1, tag=1)], 1: [recv(0, tag=2)]}, {}, ("100 bytes with tag 2",)),
    "a member that never comes": (
        {0: [collective()], 1: [collective()], 2: [collective()], 3: [compute()]}, {},
        ("3 of 4 ranks", "rank 3 to join all-reduce number 1 of all ranks"),
    ),
    "one collective too few": (
        {0: [collective(0), collective(1, [0])], **{r: [collective(0)] for r in (1, 2, 3)}}, {},
        ("1 of 4 ranks", "rank 1, 2, 3 to join all-reduce number 2"),
    ),
    "another collective": (
        {0: [collective(**kind(CollectiveType.ALL_GATHER))], **{r: [collective()] for r in (1, 2, 3)}}, {},
        ("mismatched collectives: rank 0 runs all-gather of 1000 bytes", "while rank 1 runs all-reduce"),
    ),
    "a collective of another size": (
        {3: [collective(comm_size=("int64", 999))], **{r: [collective()] for r in range(3)}}, {},
        ("mismatched collectives: rank 0 runs all-reduce of 1000 bytes", "while rank 3 runs all-reduce of 999 bytes"),
    ),
    "two groups in another order": (
        {r: [collective(0, pg_name=("string", a)), collective(1, [0], pg_name=("string", b))]
         for r, a, b in ((0, "1", "2"), (1, "2", "1"))},
        IN_A_GROUP, ("rank 1 to join all-reduce number 1 of group 1", "rank 0 to join all-reduce number 1 of group 2"),
    ),
    "both wait for the other": (
        {0: [recv(1), node(NodeType.COMM_SEND_NODE, 1, [0], comm_size=("int64", 100), comm_dst=("int32", 1))],
         1: [recv(0), node(NodeType.COMM_SEND_NODE, 1, [0], comm_size=("int64", 100), comm_dst=("int32", 0))]},
        {}, ("rank 1 to send it", "rank 0 to send it"),
    ),
}  # fmt: skip


def simulate(
    work: Sequence[Node] | dict[int, Sequence[Node]], platform: Platform, fold: bool
) -> armillary.Timeline:
    if isinstance(work, dict):
        trace = Trace.from_ranks([list(work.get(rank, ())) for rank in range(platform.npus)])
    else:
        trace = Trace.replicate(list(work), platform.npus)
    return armillary.simulate(trace, platform, profile="astra-sim", fold=fold)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str, machine: Make) -> None:
    work, keys, fragment = BAD[name]
    for fold in (True, False):
        with pytest.raises(InputError) as caught:
            simulate(work, machine(**keys), fold)
        assert fragment in str(caught.value)
        assert "\n" not in str(caught.value)
        assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", STUCK)
@pytest.mark.parametrize("fold", [True, False])
def test_stuck(name: str, fold: bool, machine: Make) -> None:
    work, keys, fragments = STUCK[name]
    with pytest.raises(StuckError) as caught:
        simulate(work, machine(**keys), fold)
    assert [fragment for fragment in fragments if fragment not in str(caught.value)] == []
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("ranks", [3, 5])
def test_wrong_number_of_ranks(ranks: int, machine: Make) -> None:
    with pytest.raises(InputError, match=f"the trace has {ranks} ranks, but the network has 4 NPUs"):
        armillary.simulate(Trace.replicate([compute()], ranks), machine(), profile="astra-sim")


@pytest.mark.parametrize(
    ("options", "fragment"),
    [({"profile": "astrasim"}, "did you mean 'astra-sim'"), ({"network_model": "analytic"}, "'analytical'")],
)
def test_unknown_options(options: dict[str, str], fragment: str, machine: Make) -> None:
    with pytest.raises(InputError, match=fragment):
        armillary.simulate(Trace.replicate([compute()], 4), machine(), **{"profile": "astra-sim", **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("work", "keys", "fragment"),
    [
        ([compute(0, [77])], {}, "1 dependencies on absent nodes were dropped (node 0 on 77"),
        ([collective(comm_size=None)], {}, "no comm_size; 0 bytes are assumed"),
        ([collective(comm_size=("int64", 0))], {}, "node 0 'comm' moves 0 bytes"),
        ([collective(involved_dim=("bool_list", [False]))], {}, "no dimension takes part"),
        ({0: [send(1)]}, {}, "never received"),
        ([compute(num_ops=("int64", 0), tensor_size=("uint64", 50))], ROOFLINE, "num_ops 0"),
    ],
)  # fmt: skip
def test_odd_input_is_run_with_a_warning(
    work: Any, keys: dict[str, Any], fragment: str, machine: Make
) -> None:
    warnings = simulate(work, machine(**keys), True).info["warnings"]
    assert [text for text in warnings if fragment in text], warnings
