"""Mistakes in platform files: each gets one error that names the place, the value and what was expected."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from armillary.base.errors import InputError
from armillary.platform import load_platform, load_study, read_platform

SYSTEM = {
    "preferred-dataset-splits": 4,
    "all-reduce-implementation": ["ring"],
    "local-mem-bw": 50,
    "peak-perf": 900,
}
NETWORK = "topology: [ Ring ]\nnpus_count: [ 8 ]\nbandwidth: [ 50.0 ]  # GB/s\nlatency: [ 500.0 ]\n"
BIG = 2**63

# part of NETWORK, its replacement, expected fragment of the message
NETWORK_CASES = [
    (
        "Ring",
        "Rng",
        "net.yml:1: topology[0]: got 'Rng',"
        " expected one of Ring, FullyConnected, Switch (did you mean 'Ring'?)",
    ),
    (
        "[ Ring ]",
        "7",
        "net.yml:1: topology: got 7, expected a list with one value per network dimension",
    ),
    ("topology: [ Ring ]\n", "", "net.yml: missing key 'topology'"),
    ("[ 8 ]", "[ 0 ]", "net.yml:2: npus_count[0]: got 0, expected a whole number from 1 to"),
    ("[ 8 ]", "[ 8.0 ]", "net.yml:2: npus_count[0]: got 8.0, expected a whole number"),
    ("[ 8 ]", "[ tbd ]", "net.yml:2: npus_count[0]: got 'tbd', expected a whole number"),
    ("[ 8 ]", f"[ {BIG} ]", f"net.yml:2: npus_count[0]: got {BIG}, expected"),
    ("[ 8 ]", "[ 8, 4 ]", "net.yml:2: npus_count: has length 2, expected 1, the length of topology"),
    ("[ 50.0 ]", "[ 0 ]", "net.yml:3: bandwidth[0]: got 0, expected a number of GB/s above 0"),
    ("[ 50.0 ]", "[ -50 ]", "net.yml:3: bandwidth[0]: got -50, expected"),
    ("[ 50.0 ]", "[ .nan ]", "net.yml:3: bandwidth[0]: got nan, expected"),
    ("[ 50.0 ]", "[ .inf ]", "net.yml:3: bandwidth[0]: got inf, expected"),
    ("[ 50.0 ]", "[ tbd ]", "net.yml:3: bandwidth[0]: got 'tbd', expected a number of GB/s above 0"),
    ("[ 50.0 ]", "", "net.yml:3: bandwidth: got nothing, expected a list"),
    ("[ 500.0 ]", "[ -1 ]", "net.yml:4: latency[0]: got -1, expected a number of ns, 0 or more"),
    ("[ 500.0 ]", f"[ {BIG} ]", f"net.yml:4: latency[0]: got {BIG}, expected"),
    ("[ 500.0 ]", "[ [1] ]", "net.yml:4: latency[0]: got [1], expected"),
    ("latency", "latncy", "net.yml:4: latncy: unknown key (did you mean 'latency'?)"),
    ("latency", "bandwidth", "net.yml:4: bandwidth: key given twice"),
    ("[ 8 ]", "[ 8", "net.yml:3:10: not valid YAML: expected ',' or ']'"),
    ("[ 8 ]", "\t[ 8 ]: :", "not valid YAML"),
    (NETWORK, "", "net.yml: got nothing, expected a mapping"),
    (NETWORK, "- 1\n", "net.yml: got [1], expected a mapping"),
    (NETWORK, "a: " + "[" * 20000, "net.yml: nested too deeply"),
]

SYSTEM_CASES = [
    ({"preferred-dataset-splits": None}, "sys.json: missing key 'preferred-dataset-splits'"),
    (
        {"preferred-dataset-splits": 0},
        "sys.json:2: preferred-dataset-splits: got 0, expected a whole number from 1 to",
    ),
    (
        {"preferred-dataset-splits": "4"},
        "sys.json:2: preferred-dataset-splits: got '4', expected a whole number",
    ),
    ({"preferred-dataset-splits": BIG}, f"sys.json:2: preferred-dataset-splits: got {BIG}, expected"),
    (
        {"all-reduce-implementation": ["rng"]},
        "sys.json:4: all-reduce-implementation[0]: got 'rng', expected an algorithm",
    ),
    ({"all-reduce-implementation": ["halvingDoublin"]}, "(did you mean 'halvingDoubling'?)"),
    ({"all-reduce-implementation": ["direct0"]}, "got 'direct0', expected an algorithm"),
    (
        {"all-reduce-implementation": "ring"},
        "sys.json:3: all-reduce-implementation: got 'ring', expected a list",
    ),
    ({"all-reduce-implementation": []}, "all-reduce-implementation: got [], expected a list of algorithms"),
    (
        {"all-reduce-implementation": ["ring", "ring"]},
        "lists 2 algorithms, expected at most 1, one per network dimension",
    ),
    ({"all-reduce-implementation-custom": ["a", "b"]}, "expected a list of exactly one prefix"),
    ({"local-mem-bw": -1}, "sys.json:6: local-mem-bw: got -1, expected GB/s, 0 or more"),
    ({"local-mem-bw": "fast"}, "sys.json:6: local-mem-bw: got 'fast', expected"),
    ({"peak-perf": None, "peak-pref": 1}, "sys.json:7: peak-pref: unknown key (did you mean 'peak-perf'?)"),
    (
        {"scheduling-policy": "LIF0"},
        "scheduling-policy: got 'LIF0', expected one of LIFO, FIFO, EXPLICIT (did you mean 'LIFO'?)",
    ),
    ({"collective-optimization": "localBWaware"}, "(did you mean 'localBWAware'?)"),
    (
        {"inter-dimension-scheduling": "themisFlexible"},
        "inter-dimension-scheduling: got 'themisFlexible', expected one of ascending, baseline, roundRobin, "
        "onlineGreedy, offlineGreedy, themis, offlineGreedyFlex, themisFlex (did you mean 'themisFlex'?)",
    ),
    ({"intra-dimension-scheduling": "FIF0"}, "(did you mean 'FIFO'?)"),
    ({"active-chunks-per-dimension": 0}, "active-chunks-per-dimension: got 0, expected"),
    ({"endpoint-delay": -5}, "endpoint-delay: got -5, expected a whole number from 0"),
    ({"roofline-enabled": "yes"}, "roofline-enabled: got 'yes', expected 0 or 1"),
    ({"model-shared-bus": 1, "G": "x"}, "G: got 'x', expected a number, 0 or more"),
    (
        {"per-node-custom-implementation": "nodes.yml"},
        "nodes.yml: no such file (per-node-custom-implementation)",
    ),
]

SYSTEM_TEXT_CASES = [
    (
        '{"preferred-dataset-splits": 4,\n "local-mem-bw": NaN}',
        "sys.json:2: got NaN, which is not a number in JSON",
    ),
    (
        '{"preferred-dataset-splits": 4,\n "local-mem-bw" 1}',
        "sys.json:2:17: not valid JSON: expecting ':' delimiter",
    ),
    ("{", "sys.json:1:2: not valid JSON"),
    ("", "sys.json:1:1: not valid JSON: expecting value"),
    ("[]", "sys.json: got [], expected a mapping"),
    ("[" * 100000, "sys.json: nested too deeply"),
    (b"\xff\xfe\x00", "sys.json: not a text file: byte 0 is not UTF-8"),
]

POOL = {"memory-type": "MEMORY_POOL"}
NODE = {"memory-type": "PER_NODE_MEMORY_EXPANSION"}
MEMORY_CASES = [
    ({}, "missing key 'memory-type'"),
    ({"memory-type": "POOL"}, "memory-type: got 'POOL', expected one of NO_MEMORY_EXPANSION"),
    (POOL | {"remote-mem-bw": -1}, "remote-mem-bw: got -1, expected"),
    (POOL | {"remote-mem-latency": BIG}, f"remote-mem-latency: got {BIG}, expected"),
    (POOL | {"remote-mem-bandwidth": 1}, "unknown key (did you mean 'remote-mem-bw'?)"),
    (NODE | {"num-nodes": 2}, "missing key 'num-npus-per-node'"),
    (NODE | {"num-nodes": 1, "num-npus-per-node": 4}, "1 nodes of 4 NPUs hold 4, expected room for 8 NPUs"),
]

GROUP_CASES = [
    ({"0": [0, 1]}, "0: got group id '0', expected a whole number above 0"),
    ({"a": [0, 1]}, "got group id 'a', expected"),
    ({"1": [0, 8]}, "1[1]: got 8, expected a rank from 0 to 7"),
    ({"1": [0, -1]}, "1[1]: got -1, expected a rank"),
    ({"1": [0, 0]}, "1[1]: rank 0 is in the group twice"),
    ({"1": []}, "1: got [], expected a list of ranks"),
    ({"1": [0, "1"]}, "1[1]: got '1', expected a rank"),
]

FLAG_CASES = [
    ("--num-queues-per-dim=0", "--num-queues-per-dim: got '0', expected a whole number, 1 or more"),
    ("--num-queue-per-dim=2", "unknown flag --num-queue-per-dim (did you mean 'num-queues-per-dim'?)"),
    ("--rendezvous-protocol=maybe", "--rendezvous-protocol: got 'maybe', expected true or false"),
    ("--injection-scale=nan", "--injection-scale: got 'nan', expected a number, 0 or more"),
    ("fast", "got 'fast', expected a flag"),
]

NATIVE = """\
workload: {trace: traces/step}
platform:
  network:
    - {topology: Ring, size: 4, bandwidth: 250 GB/s, latency: 500 ns}
    - name: node
      topology: Switch
      size: 2
      bandwidth: 200 GB/s
      latency: 1 us
  npu: {memory: {bandwidth: 2 TB/s}}
"""
NATIVE_CASES = [
    (
        "topology: Switch",
        "topology: Swich",
        "study.yaml:6: platform.network[1].topology: got 'Swich',"
        " expected one of Ring, FullyConnected, Switch, Mesh, Torus (did you mean 'Switch'?)",
    ),
    ("size: 2", "size: 1", "study.yaml:7: platform.network[1].size: got 1, expected 2 or more"),
    ("size: 2", "size: '2'", "study.yaml:7: platform.network[1].size: got '2', expected a whole number"),
    (
        "200 GB/s",
        "200",
        "study.yaml:8: platform.network[1].bandwidth: got 200,"
        " expected a bandwidth with a unit, e.g. '400 GB/s'",
    ),
    (
        "200 GB/s",
        "200 GBs",
        "study.yaml:8: platform.network[1].bandwidth: got '200 GBs', with unknown unit 'GBs'",
    ),
    ("200 GB/s", "0 GB/s", "study.yaml:8: platform.network[1].bandwidth: got '0 GB/s', expected more than 0"),
    ("1 us", "-1 us", "study.yaml:9: platform.network[1].latency: got '-1 us', which is negative"),
    ("name: node", "name: dim0", "study.yaml:5: platform.network[1].name: name 'dim0' is used twice"),
    ("      latency: 1 us\n", "", "study.yaml:5: missing key 'latency' in platform.network[1]"),
    ("  npu:", "  nqu:", "study.yaml:10: platform.nqu: unknown key (did you mean 'npu'?)"),
    (
        "{bandwidth: 2 TB/s}",
        "{bandwith: 2 TB/s}",
        "study.yaml:10: platform.npu.memory.bandwith: unknown key (did you mean 'bandwidth'?)",
    ),
    (
        "npu: {",
        "npu: {endpoint_delay: 1.5 ns, ",
        "platform.npu.endpoint_delay: got '1.5 ns', expected a whole number of ns",
    ),
    ("workload: {trace: traces/step}\n", "", "study.yaml: missing key 'workload'"),
    (
        "trace: traces/step",
        "collective: all-reduce",
        "study.yaml:1: workload: expected collective and size together",
    ),
    ("trace: traces/step", "", "study.yaml:1: workload: expected either trace, or collective with size"),
    (
        "trace: traces/step",
        "collective: allreduce, size: 1 GiB",
        "workload.collective: got 'allreduce',"
        " expected one of all-reduce, all-gather, reduce-scatter, all-to-all,"
        " broadcast, reduce, gather, scatter, reduce-scatter-block (did you mean 'all-reduce'?)",
    ),
    (
        "platform:",
        "profile: physicl\nplatform:",
        "study.yaml:2: profile: got 'physicl', expected one of physical, astra-sim (did you mean 'physical'?)",
    ),
    ("platform:", "time_unit: fs\nplatform:", "study.yaml:2: time_unit: got 'fs', expected one of ns"),
    (
        "  npu",
        "  collectives: {all-reduce: [ring]}\n  npu",
        "study.yaml:10: platform.collectives.all-reduce: lists 1 algorithms, expected 2",
    ),
    (
        "  npu",
        "  collectives: {all-gather: rng}\n  npu",
        "platform.collectives.all-gather[0]: got 'rng', expected an algorithm",
    ),
    (
        "  npu",
        "  groups: {1: [0, 9]}\n  npu",
        "study.yaml:10: platform.groups[1][1]: got 9, expected a rank from 0 to 7",
    ),
    ("  npu", "  groups: [1]\n  npu", "platform.groups: got [1], expected a mapping"),
    (
        "  npu",
        "  compute: {roofline: true}\n  npu",
        "study.yaml:10: platform.compute.roofline: expected npu.peak and npu.memory.bandwidth with it",
    ),
    (
        "  npu",
        "  remote_memory: {kind: pool, bandwidth: 12.5 GB/s, latency: 1 us}\n  npu",
        "got '12.5 GB/s', expected a whole number of GB/s",
    ),
    (
        "  npu",
        "  remote_memory: {kind: per-node, bandwidth: 1 GB/s, latency: 1 us}\n  npu",
        "expected npus_per_node with kind per-node, and only there",
    ),
    (
        NATIVE[NATIVE.index("platform:") :],
        "platform: 3\n",
        "study.yaml:2: platform: got 3, expected a mapping of keys to values",
    ),
    (
        NATIVE[NATIVE.index("platform:") :],
        "platform: {network: []}\n",
        "platform.network: got [], expected at least one entry",
    ),
]


def check(error: pytest.ExceptionInfo[InputError], fragment: str) -> None:
    message = str(error.value)
    assert fragment in message
    assert "\n" not in message
    assert error.value.exit_code == 2


@pytest.mark.parametrize(("part", "replacement", "fragment"), NETWORK_CASES)
def test_network_file(tmp_path: Path, part: str, replacement: str, fragment: str) -> None:
    file = tmp_path / "net.yml"
    file.write_text(NETWORK.replace(part, replacement, 1))
    with pytest.raises(InputError) as error:
        read_platform(SYSTEM, file)
    check(error, fragment)


@pytest.mark.parametrize(("change", "fragment"), SYSTEM_CASES)
def test_system_file(tmp_path: Path, change: dict[str, object], fragment: str) -> None:
    system = {key: value for key, value in {**SYSTEM, **change}.items() if value is not None}
    file = tmp_path / "sys.json"
    file.write_text(json.dumps(system, indent=2))
    with pytest.raises(InputError) as error:
        read_platform(file, network())
    check(error, fragment)


@pytest.mark.parametrize(("text", "fragment"), SYSTEM_TEXT_CASES)
def test_broken_json(tmp_path: Path, text: str | bytes, fragment: str) -> None:
    file = tmp_path / "sys.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as error:
        read_platform(file, network())
    check(error, fragment)


@pytest.mark.parametrize(("memory", "fragment"), MEMORY_CASES)
def test_memory(memory: dict[str, object], fragment: str) -> None:
    with pytest.raises(InputError, match=r"^remote-memory configuration: ") as error:
        read_platform(SYSTEM, network(), memory)
    check(error, fragment)


@pytest.mark.parametrize(("groups", "fragment"), GROUP_CASES)
def test_groups(groups: dict[str, object], fragment: str) -> None:
    with pytest.raises(InputError, match=r"^communicator-group configuration: ") as error:
        read_platform(SYSTEM, network(), comm_groups=groups)
    check(error, fragment)


@pytest.mark.parametrize(("flag", "fragment"), FLAG_CASES)
def test_flags(flag: str, fragment: str) -> None:
    with pytest.raises(InputError, match=r"^command line: ") as error:
        read_platform(SYSTEM, network(), cli=[flag])
    check(error, fragment)


@pytest.mark.parametrize(("part", "replacement", "fragment"), NATIVE_CASES)
def test_native_file(tmp_path: Path, part: str, replacement: str, fragment: str) -> None:
    assert part in NATIVE
    file = tmp_path / "study.yaml"
    file.write_text(NATIVE.replace(part, replacement, 1))
    with pytest.raises(InputError) as error:
        load_study(file)
    check(error, fragment)


def test_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "network.yml").touch()
    with pytest.raises(InputError, match=re.escape("(network configuration) (did you mean 'network.yml'?)")):
        read_platform(SYSTEM, tmp_path / "netwrk.yml")
    with pytest.raises(InputError, match="no such file"):
        read_platform(SYSTEM, tmp_path / "absent" / "network.yml")
    with pytest.raises(InputError, match="cannot read the network configuration: is a directory"):
        read_platform(SYSTEM, tmp_path)


def test_an_astra_sim_network_is_no_native_platform(tmp_path: Path) -> None:
    file = tmp_path / "net.yml"
    file.write_text(NETWORK)
    with pytest.raises(InputError, match="this is an ASTRA-sim network file"):
        load_platform(file)


def network() -> dict[str, object]:
    return {"topology": ["Ring"], "npus_count": [8], "bandwidth": [50.0], "latency": [500.0]}
