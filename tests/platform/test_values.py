"""What a machine may be: Python and study files refuse the same values in the same words, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.platform import (
    AstraSimSystem,
    Collectives,
    Compute,
    Dimension,
    Jitter,
    Kernels,
    LocalMemory,
    MemoryStage,
    NetworkChoice,
    Npu,
    Override,
    Platform,
    Port,
    RemoteMemory,
    SharedBus,
)
from armillary.platform.collectives import CHUNK_ORDERS, Algorithm, FitChoice, HostPath
from armillary.platform.kernels import Interval, Terms
from armillary.platform.model import Packets, SchedulingName
from armillary.platform.network import InNetwork

DIMENSION = {"name": "d", "topology": "Ring", "size": 4, "bandwidth": "50 GB/s", "latency": "1 us"}


def dimension(**keys: Any) -> Dimension:
    return Dimension(
        **({"name": "d", "topology": "Ring", "size": 4, "bandwidth": 50.0, "latency": 1e3} | keys)
    )


def python(**keys: Any) -> Platform:
    return Platform((dimension(),), **keys)


def network(**keys: Any) -> dict[str, Any]:
    return {"network": [DIMENSION | keys]}


def keys(**keys: Any) -> dict[str, Any]:
    return {"network": [DIMENSION], **keys}


@dataclass(frozen=True)
class Case:
    """A value of a machine: how Python and how a file set it, and the unit of the text in a file ("": none)."""

    python: Callable[[Any], object]
    file: Callable[[Any], dict[str, Any]]
    unit: str = ""
    scale: float = 1


CASES = {
    "latency": Case(lambda v: Platform((dimension(latency=v),)), lambda v: network(latency=v), "ns"),
    "bandwidth": Case(lambda v: Platform((dimension(bandwidth=v),)), lambda v: network(bandwidth=v), "GB/s"),
    "size": Case(lambda v: Platform((dimension(size=v),)), lambda v: network(size=v)),
    "topology": Case(lambda v: Platform((dimension(topology=v),)), lambda v: network(topology=v)),
    "peak": Case(
        lambda v: python(npu=Npu(peak={"bf16": v})),
        lambda v: keys(npu={"peak": {"bf16": v}}), "FLOP/s",
    ),
    "share": Case(
        lambda v: python(compute=Compute(kernels=Kernels(compute=v))),
        lambda v: keys(compute={"efficiency": {"compute": v}}), "%", 100,
    ),
    "overhead": Case(
        lambda v: python(compute=Compute(kernels=Kernels(overhead=v))),
        lambda v: keys(compute={"kernel_overhead": v}), "ns",
    ),
    "chunks": Case(lambda v: python(collectives=Collectives(chunks=v)), lambda v: keys(collectives={"chunks": v})),
    "queues": Case(
        lambda v: python(astra_sim=AstraSimSystem(queues_per_dim=v)), lambda v: keys(collectives={"queues": v})
    ),
    "chunk order": Case(
        lambda v: python(collectives=Collectives(chunk_order=v)), lambda v: keys(collectives={"chunk_order": v})
    ),
    "within": Case(
        lambda v: python(collectives=Collectives(within_dimension=v)),
        lambda v: keys(collectives={"within_dimension": v}),
    ),
    "scheduling": Case(lambda v: python(scheduling=v), lambda v: keys(scheduling=v)),
    "optimization": Case(
        lambda v: python(astra_sim=AstraSimSystem(collective_optimization=v)),
        lambda v: keys(collectives={"optimization": v}),
    ),
    "algorithm": Case(
        lambda v: python(collectives=Collectives(algorithms={"all-reduce": (v,)})),
        lambda v: keys(collectives={"all-reduce": [v]}),
    ),
    "rendezvous": Case(lambda v: python(astra_sim=AstraSimSystem(rendezvous=v)), lambda v: keys(rendezvous=v)),
    "speed": Case(lambda v: python(npu=Npu(speed={1: v})), lambda v: keys(npu={"speed": {1: v}})),
    "straggler": Case(
        lambda v: python(stragglers={1: v}), lambda v: keys(stragglers={1: v}), "ns"
    ),
    "sigma": Case(
        lambda v: python(jitter=Jitter(v)), lambda v: keys(jitter={"sigma": v}), "%", 100
    ),
    "seed": Case(
        lambda v: python(jitter=Jitter(0.5, v)), lambda v: keys(jitter={"sigma": "50 %", "seed": v})
    ),
    "launch": Case(
        lambda v: python(terms=Terms(launch=v)), lambda v: keys(terms={"launch": v}), "ns"
    ),
    "term": Case(
        lambda v: python(terms=Terms(communication=v)), lambda v: keys(terms={"communication": v}),
        "%", 100,
    ),
    "inside": Case(
        lambda v: python(terms=Terms(communication_inside=v)),
        lambda v: keys(terms={"communication": {"inside": v}}), "%", 100,
    ),
    "between": Case(
        lambda v: python(terms=Terms(communication_between=v)),
        lambda v: keys(terms={"communication": {"between": v}}), "%", 100,
    ),
    "processors": Case(
        lambda v: python(terms=Terms(overlap_processors=v)),
        lambda v: keys(terms={"overlap": {"processors": v}}),
    ),
    "traffic": Case(
        lambda v: python(terms=Terms(overlap_traffic=v)), lambda v: keys(terms={"overlap": {"traffic": v}})
    ),
    "near": Case(
        lambda v: python(collectives=Collectives(fit=FitChoice("a100-sxm", host=HostPath(1.0, v)))),
        lambda v: keys(collectives={"fit": "a100-sxm", "host": {"bandwidth": "1 GB/s", "near": v}}),
    ),
    "factor": Case(
        lambda v: python(compute=Compute(overrides=(Override(factor=v),))),
        lambda v: keys(compute={"overrides": [{"factor": v}]}),
    ),
    "model": Case(
        lambda v: python(compute=Compute(model=v)),
        lambda v: keys(npu={"peak": "1 TFLOP/s", "memory": {"bandwidth": "1 TB/s"}}, compute={"model": v}),
    ),
    "group": Case(lambda v: python(groups={1: (0, v)}), lambda v: keys(groups={1: [0, v]})),
    "memory latency": Case(
        lambda v: python(npu=Npu(memory=LocalMemory(latency=v))),
        lambda v: keys(npu={"memory": {"bandwidth": "1 TB/s", "latency": v}}), "ns",
    ),
    "switch latency": Case(
        lambda v: Platform((dimension(topology="Switch", in_network=InNetwork(latency=v)),)),
        lambda v: network(topology="Switch", in_network={"latency": v}), "ns",
    ),
}  # fmt: skip
NUMBERS = st.one_of(
    st.sampled_from([-3, -1, 0, 1, 2, 64, 2**31 - 1, 2**31, 2**53, 2**62, 2**63, 10**30, 9223372036 * 10**9]),
    st.integers(-10, 2**70),
    st.floats(allow_nan=True, allow_infinity=True),
)
WORDS = [
    *get_args(SchedulingName),
    *CHUNK_ORDERS.built_in,
    "ring",
    "direct8",
    "direct0",
    "Ring",
    "ringg",
]
OTHERS = st.sampled_from(
    [*WORDS, "nonsense", "", "ROOFLINE", "roofline", None, True, False, [], {}, (), b"x", "1"]
)


def outcome(make: Callable[[], object]) -> str | None:
    """Return what was expected, None if the value was accepted; anything but an InputError fails."""
    try:
        make()
    except InputError as error:
        assert "\n" not in str(error)
        return str(error).partition("expected ")[2].partition(", e.g.")[0] or str(error)
    return None


def written(case: Case, value: object) -> object:
    """Return a value as a file writes it."""
    if not case.unit or isinstance(value, bool) or not isinstance(value, int | float):
        return value
    number = value * case.scale
    return f"{number if isinstance(number, int) else repr(number)} {case.unit}"


@settings(deadline=None)
@given(st.sampled_from(sorted(CASES)), st.one_of(NUMBERS, OTHERS))
@example("scheduling", "nonsense")
@example("chunks", 0)
@example("chunks", -3)
@example("latency", 9223372036 * 10**9)
@example("bandwidth", math.nan)
@example("chunk order", "themiss")
def test_python_and_files_refuse_the_same_in_the_same_words(name: str, value: object) -> None:
    case = CASES[name]
    own = outcome(lambda: case.python(value))
    text = written(case, value)
    file = outcome(lambda: armillary.load_platform(case.file(text)))
    # In a file nothing is as good as no key, and in Python an empty name is no compute model, which is the default.
    if (value is None and file is None) or (name == "model" and value == ""):
        return
    if text is value:
        assert (own is None) == (file is None), (own, file)
        same = isinstance(value, int | str) and not isinstance(value, bool) and value != ""
    else:  # a file may write no number of thousands of digits, and rounds one in percent
        same = isinstance(value, int) and abs(value) < 10**30
        assert own is None or file is not None or (isinstance(value, float) and abs(value) < 1e-300), (
            own,
            file,
        )
        assert file is None or own is not None or isinstance(value, float), (own, file)
    if (
        same
        and own is not None
        and file is not None
        and "too large" not in file
        and "with a unit" not in file
    ):
        assert own == file


VALUES = {
    Port: {"out": 1.0, "into": 1.0},
    InNetwork: {},
    Dimension: {"name": "d", "topology": "Ring", "size": 4, "bandwidth": 1.0, "latency": 0.0},
    Algorithm: {"name": "ring"},
    SharedBus: {"L": 0, "o": 0, "g": 0, "G": 0.0},
    AstraSimSystem: {},
    Jitter: {"sigma": 0.1},
    Kernels: {},
    LocalMemory: {},
    Override: {"factor": 1.0},
    Interval: {"low": 0.9, "high": 1.1},
    Compute: {},
    Npu: {},
    Collectives: {},
    MemoryStage: {"name": "s", "per": "npu", "count": 1, "read": 1.0, "write": 1.0},
    NetworkChoice: {},
    RemoteMemory: {},
    Packets: {},
    Platform: {"dimensions": (Dimension("d", "Ring", 4, 1.0, 0.0),)},
    Terms: {},
    FitChoice: {"name": "h100-sxm"},
}
PARTS = (Npu, Compute, Collectives, LocalMemory, AstraSimSystem)
NOT_CHECKED = {"source", "folder", "warnings", "topology"}
"""Where something is from, and a graph, which checks itself."""


def test_every_public_part_of_a_machine_is_here() -> None:
    import armillary.platform as public

    parts = {getattr(public, name) for name in public.__all__}
    assert {part for part in parts if is_dataclass(part)} - VALUES.keys() == {public.Collective, public.Study}


def test_no_part_of_a_machine_says_what_another_says() -> None:
    parts = {each.name for each in fields(Platform)}
    names = [each.name for part in PARTS for each in fields(part)]
    # Compute models and kinds of memory of other packages have options, and a folder for paths in them.
    names = [name for name in names if name not in ("options", "folder")]
    assert len(set(names)) == len(names)
    assert parts & set(names) <= {"source"}  # of a file, and of a line in it


def test_a_machine_has_the_keys_of_a_study_file() -> None:
    from armillary.platform.files.network_schema import Collectives as CollectivesKeys
    from armillary.platform.files.network_schema import Memory
    from armillary.platform.files.study_schema import Npu as NpuKeys
    from armillary.platform.files.study_schema import PlatformFile

    def names(part: Any) -> set[str]:
        return {each.name for each in fields(part)}

    assert names(Npu) == NpuKeys.model_fields.keys()
    assert names(LocalMemory) - {"folder"} == Memory.model_fields.keys()
    assert names(Collectives) - {"algorithms"} <= CollectivesKeys.model_fields.keys()
    # Ports differ on machines that are drawn from `variation` only.
    own = {"dimensions", "astra_sim", "dialect", "profile", "warnings", "source", "port_speed"}
    assert names(Platform) - own <= PlatformFile.model_fields.keys()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"npu": Npu(speed={4: 0.5})}, "Platform.npu.speed[4]: got 4, expected a rank from 0 to 3"),
        ({"stragglers": {-1: 1.0}}, "Platform.stragglers[-1]: got -1, expected a rank from 0 to 3"),
        (
            {"collectives": Collectives({"broadcast": ("ring",)}), "dialect": "astra-sim"},
            "Platform.collectives.algorithms: got 'broadcast', expected one of all-reduce",
        ),
        (
            {"collectives": Collectives({"all-reduce": ("auto",)}), "dialect": "astra-sim"},
            "Platform.collectives.algorithms.all-reduce[0]: got 'auto', expected an algorithm: ring, oneRing, ",
        ),
    ],
)
def test_parts_that_do_not_fit_each_other_are_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        python(**keys)
    assert str(error.value).startswith(words)


@pytest.mark.parametrize("part", VALUES, ids=lambda part: part.__name__)
def test_every_field_refuses_what_it_cannot_be(part: Any) -> None:
    part(**VALUES[part])
    for each in fields(part):
        if each.name in NOT_CHECKED:
            continue
        with pytest.raises(InputError, match=rf"^{part.__name__}\.{each.name}.*: got .*expected"):
            part(**{**VALUES[part], each.name: object()})


@settings(deadline=None)
@given(st.data())
def test_no_value_of_a_field_is_a_traceback(data: st.DataObject) -> None:
    part = data.draw(st.sampled_from(list(VALUES)))
    name = data.draw(st.sampled_from([each.name for each in fields(part) if each.name not in NOT_CHECKED]))
    outcome(lambda: part(**{**VALUES[part], name: data.draw(st.one_of(NUMBERS, OTHERS))}))


@pytest.mark.parametrize("protocol", ["lossless", "credit", "tcp"])
@given(value=st.one_of(NUMBERS, OTHERS), data=st.data())
@settings(deadline=None)
def test_options_of_packets_are_checked(protocol: str, value: object, data: st.DataObject) -> None:
    from armillary.platform.packet_options import PROTOCOLS

    names = [*PROTOCOLS[protocol].model_fields, "nonsense"]
    name = data.draw(st.sampled_from(names))
    found = outcome(lambda: Packets(protocol, {name: value}))  # type: ignore[arg-type]
    assert found is not None or name not in ("protocol", "nonsense")


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ("gpu", {}, "Compute.options: missing key 'device'"),
        ("tiled", {"buffer": -1}, "Compute.options.buffer: got -1, expected more than 0"),
        (
            "tiled",
            {"buffer": 1, "bufer": 1},
            "Compute.options.bufer: unknown key (did you mean 'buffer'?)",
        ),
        ("subprocess", {"command": "ls"}, "Compute.options.command: got 'ls', expected a list of words"),
        ("rooflin", {}, "Compute.model: got 'rooflin', expected one of roofline"),
    ],
)
def test_options_of_compute_models_are_checked(model: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        Compute(model, options)
    assert str(error.value).startswith(words)


@pytest.mark.parametrize("value", [5, b"x", None, 1.5, []])
def test_what_is_no_path_is_named(value: Any) -> None:
    for call in (armillary.load_platform, armillary.load_trace, armillary.sweep, armillary.search):
        with pytest.raises(InputError, match=r"got .*expected"):
            call(value)
