"""The key `topology` of platform files: every kind, its errors, and that nothing simulates it yet."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from armillary.base.errors import InputError
from armillary.platform import json_schema, load_platform, load_study
from armillary.platform.topology import Network, load_network
from armillary.platform.topology.show import describe, table

LINKS = "bandwidth: 50 GB/s, latency: 500 ns"
KINDS = {
    f"{{kind: fat-tree, k: 4, oversubscription: 2, {LINKS}}}": (32, "ecmp"),
    f"{{kind: leaf-spine, leaves: 3, spines: 2, npus_per_leaf: 4, uplink: 100 GB/s, {LINKS}}}": (12, "ecmp"),
    f"{{kind: dragonfly, npus_per_router: 1, routers: 2, global_links: 1, groups: 2, {LINKS}}}": (4, "ecmp"),
    "{kind: rail-optimised, hosts: 4, npus_per_host: 2, host_bandwidth: 450 GB/s, host_latency: 1 us, "
    f"routing: rail, {LINKS}}}": (8, "rail"),
    f"{{kind: wafer-mesh, shape: [4, 2], die: [2, 2], die_bandwidth: 9 GB/s, {LINKS}}}": (
        8,
        "dimension-order",
    ),
    f"{{kind: hypercube, order: 3, routing: adaptive, seed: 7, {LINKS}}}": (8, "adaptive"),
    f"{{kind: optical-torus, shape: [4, 4, 4], {LINKS}}}": (64, "dimension-order"),
    f"{{kind: optical-torus, shape: [4, 4, 8], twisted: true, {LINKS}}}": (128, "ecmp"),
    f"{{kind: dimensions, network: [{{topology: Ring, size: 3, {LINKS}}}]}}": (3, "dimension-order"),
    "{kind: file, file: net.csv, routing: shortest}": (2, "shortest"),
    "{kind: file, file: net.csv, routing: static, table: table.csv}": (2, "static"),
}


def written(folder: Path, topology: str, rest: str = "") -> Path:
    (folder / "net.csv").write_text("from,to,bandwidth,latency\nnpu 0,npu 1,1 GB/s,1 us\n")
    (folder / "table.csv").write_text("node,destination,next\nnpu 0,npu 1,npu 1\n")
    path = folder / "machine.yaml"
    path.write_text(f"platform:\n  topology: {topology}\n{rest}")
    return path


def network(path: Path) -> Network:
    found = load_network(path)
    assert found is not None
    return found


@pytest.mark.parametrize("text", KINDS)
def test_every_kind(tmp_path: Path, text: str) -> None:
    found = network(written(tmp_path, text))
    npus, routing = KINDS[text]
    assert (found.topology.npus, found.routing) == (npus, routing)
    assert found.at().paths([0], [npus - 1] if routing != "static" else [1]).hops[0] >= 1
    described = json.loads(json.dumps(describe(found)))
    assert (
        described["npus"] == npus
        and sum(part["count"] for part in described["links"]) == found.topology.links
    )


def test_keys_reach_the_graph(tmp_path: Path) -> None:
    text = (
        f"{{kind: fat-tree, k: 4, buffer: 1 MiB, seed: 3, {LINKS}, failures: [{{node: core 0, at: 2 us}}]}}"
    )
    found = network(written(tmp_path, text))
    assert set(found.topology.buffer.tolist()) == {1 << 20} and found.seed == 3
    assert [(found.at(time).topology.bandwidth == 0).sum() for time in (0.0, 2000.0)] == [0, 8]


@pytest.mark.parametrize(
    ("text", "message"),
    (
        ("5", r"machine.yaml:2: platform.topology: got 5, expected a mapping with a kind"),
        ("{k: 4}", "platform.topology: missing key 'kind', expected one of dimensions, fat-tree"),
        ("{kind: fat tree}", r"platform.topology.kind: got 'fat tree', .* \(did you mean 'fat-tree'\?\)"),
        (f"{{kind: fat-tree, {LINKS}}}", "missing key 'k' in platform.topology"),
        (f"{{kind: fat-tree, kk: 4, {LINKS}}}", r"platform.topology.kk: unknown key \(did you mean 'k'\?\)"),
        (
            f"{{kind: fat-tree, k: 5, {LINKS}}}",
            "machine.yaml:2: platform.topology: fat-tree: k: got 5",
        ),
        (
            "{kind: fat-tree, k: 4, bandwidth: 50, latency: 1 ns}",
            "bandwidth: got 50, expected a bandwidth with a unit",
        ),
        ("{kind: file, file: nett.csv}", r"no such file \(edge list\) \(did you mean 'net.csv'\?\)"),
        (f"{{kind: fat-tree, k: 4, {LINKS}, routing: emcp}}", r"did you mean 'ecmp'"),
        (
            f"{{kind: fat-tree, k: 4, {LINKS}, failures: [{{node: cor 1}}]}}",
            r"no node 'cor 1' \(did you mean 'core 1",
        ),
        (
            f"{{kind: fat-tree, k: 4, {LINKS}, failures: [{{link: [core 0]}}]}}",
            r"failures\[0\].link: .* at least",
        ),
    ),
)
def test_errors_name_the_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_network(written(tmp_path, text))


def test_routing_that_does_not_fit(tmp_path: Path) -> None:
    for name, message in (
        ("rail", "needs hosts"),
        ("dimension-order", "of dimensions"),
        ("static", "needs a table"),
    ):
        with pytest.raises(InputError, match=rf"machine.yaml:\d+: .*topology.routing: .*{message}"):
            network(written(tmp_path, f"{{kind: fat-tree, k: 4, routing: {name}, {LINKS}}}"))


def test_profile_astra_sim_has_no_graphs_and_a_machine_has_one_network(tmp_path: Path) -> None:
    work = "workload: {collective: all-reduce, size: 1 MiB}\n"
    path = written(tmp_path, f"{{kind: fat-tree, k: 4, {LINKS}}}", work)
    for load in (lambda path: load_study(path).platform, load_platform):
        assert load(path).topology.topology.npus == 16
    plain = path.read_text()
    path.write_text(plain + "profile: astra-sim\n")
    with pytest.raises(
        InputError, match=r"machine.yaml:2: platform.topology: a graph: profile astra-sim does"
    ):
        load_study(path)
    path.write_text(
        plain.replace("platform:\n", f"platform:\n  network: [{{topology: Ring, size: 2, {LINKS}}}]\n")
    )
    with pytest.raises(InputError, match="expected either network or topology, not both"):
        load_study(path)


def test_the_table_says_who_is_lost(tmp_path: Path) -> None:
    from rich.console import Console

    failing = "failures: [{node: spine 0, at: 1 ms}]"
    text = f"{{kind: leaf-spine, leaves: 2, spines: 1, npus_per_leaf: 1, {LINKS}, {failing}}}"
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(table(network(written(tmp_path, text))))
    shown = console.export_text()
    assert "failure    spine 0: down from 1 ms" in shown
    assert "reachable  from 1 ms: leaf-spine: no way from npu 1 to npu 0" in shown


def test_the_schema_has_every_kind() -> None:
    schema = json_schema()
    kinds = [
        schema["$defs"][choice["$ref"].rpartition("/")[2]] for choice in schema["$defs"]["Topology"]["oneOf"]
    ]
    assert len(kinds) == 11 and all(kind["additionalProperties"] is False for kind in kinds)
    protocols = [choice["$ref"].rpartition("/")[2] for choice in schema["$defs"]["Packets"]["oneOf"]]
    assert all(schema["$defs"][name]["additionalProperties"] is False for name in protocols)
    assert [schema["$defs"][name]["properties"]["protocol"]["const"] for name in protocols] == [
        "lossless", "rdma", "credit", "tcp",
    ]  # fmt: skip
    references = set()

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            references.update([value["$ref"]] if "$ref" in value else [])
            list(map(collect, value.values()))
        elif isinstance(value, list):
            list(map(collect, value))

    collect(schema)
    assert {reference.rpartition("/")[2] for reference in references} <= set(schema["$defs"])


def test_topologies_in_yaml_are_plain(tmp_path: Path) -> None:
    path = written(tmp_path, f"{{kind: fat-tree, k: 4, {LINKS}}}")
    alone = tmp_path / "alone.yaml"
    alone.write_text(yaml.safe_dump(yaml.safe_load(path.read_text())["platform"]))
    assert network(alone).topology.npus == network(path).topology.npus
