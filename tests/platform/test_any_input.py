"""Whatever stands in a configuration, the answer is a platform or one InputError."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.platform import Platform, Study, load_study, read_platform
from armillary.platform.files.astra_sim_keys import MEMORY_KEYS, NETWORK_KEYS, SYSTEM_KEYS

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 9),
    st.sampled_from([2**63, 10**400, -(2**70)]),
    st.floats(),
    st.sampled_from(
        ["ring", "direct3", "Ring", "Switch", "MEMORY_POOL", "NO_MEMORY_EXPANSION", "LIFO", "tbd"]
    ),
    st.text(max_size=5),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
)
SYSTEM = {"preferred-dataset-splits": 1, "all-reduce-implementation": ["ring"]}
NETWORK = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}


def mappings(keys: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(keys) | st.text(max_size=4), VALUES, max_size=3)


def outcome(*configuration: Any) -> None:
    try:
        assert isinstance(read_platform(*configuration), Platform)
    except InputError as error:
        assert "\n" not in str(error)


@given(mappings(SYSTEM_KEYS), mappings(NETWORK_KEYS))
def test_system_and_network(system: dict[str, Any], network: dict[str, Any]) -> None:
    outcome({**SYSTEM, **system}, NETWORK)
    outcome(SYSTEM, {**NETWORK, **network})


@given(mappings(MEMORY_KEYS), st.dictionaries(st.sampled_from(["1", "2"]) | st.text(max_size=3), VALUES))
def test_memory_and_groups(memory: dict[str, Any], groups: dict[str, Any]) -> None:
    outcome(SYSTEM, NETWORK, {"memory-type": "MEMORY_POOL", **memory})
    outcome(SYSTEM, NETWORK, None, groups)


NATIVE_KEYS = (
    *("workload", "platform", "profile", "time_unit", "trace", "network", "npu", "collectives", "groups"),
    *("remote_memory", "compute", "peak", "memory", "endpoint_delay", "all-reduce", "chunks", "roofline"),
    *(
        "speed",
        "stragglers",
        "jitter",
        "variation",
        "clock",
        "share",
        "spread",
        "levels",
        "scheduling",
        "sigma",
        "seed",
        "bandwidth",
        "shape",
        "per",
        "up",
    ),
    *("efficiency", "kernel_overhead", "capacity", "bf16", "generate"),
)
PARTS = st.sampled_from(
    ["npu", "collectives", "compute", "groups", "workload", "jitter", "stragglers", "variation"]
)


@given(mappings(NATIVE_KEYS), mappings(NATIVE_KEYS), PARTS)
def test_native(tmp_path: Path, top: dict[str, Any], part: dict[str, Any], name: str) -> None:
    line = {"topology": "Ring", "size": 4, "bandwidth": "1 GB/s", "latency": "1 ns"}
    study = {"workload": {"trace": "t"}, "platform": {"network": [line], name: part}}
    file = tmp_path / "study.yaml"
    torus = {"topology": "Torus", "shape": [2, 2], "bandwidth": "1 GB/s", "latency": "1 ns", **part}
    for content in ({**study, **top}, study, {**study, "platform": {"network": [torus], **top}}):
        file.write_text(yaml.safe_dump(content))
        try:
            assert isinstance(load_study(file), Study)
        except InputError as error:
            assert "\n" not in str(error)


@given(st.text(alphabet="{}[]:,&*a!?-1 \n\t'\"#%|>.\\\x00é", max_size=30))
def test_any_text(tmp_path: Path, text: str) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    outcome(file, NETWORK)
    outcome(SYSTEM, file)
    with pytest.raises(InputError):
        load_study(file)


@pytest.mark.parametrize(
    "text",
    [
        "topology: &a [*a]\nnpus_count: 1\nbandwidth: 1\nlatency: 1\n",
        "? [a]\n: b\n",
        "? {a: 1}\n: b\n",
        "!!map [a]\n",
        "topology: [2020-99-99]\n",
        "topology: [!!binary abc]\n",
        "topology: [!!python/object:os.system x]\n",
        "a: &a [x, x]\nb: &b [*a, *a]\ntopology: &c [*b, *b]\n",
        "topology: [" + "9" * 5000 + "]\n",
    ],
)
def test_strange_yaml(tmp_path: Path, text: str) -> None:
    file = tmp_path / "net.yml"
    file.write_text(text)
    outcome(SYSTEM, file)
    with pytest.raises(InputError):
        load_study(file)
