"""The machines of the case studies, against ticks of ASTRA-sim itself."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from armillary.evidence.reproduce.case2 import ASTRA_SIM
from armillary.evidence.reproduce.case_machines import EQUALS, MACHINES, NPUS, MachineAssumptions, machine
from armillary.evidence.reproduce.case_workloads import ALL_REDUCE, WorkloadAssumptions, measure, workloads
from armillary.platform.model import IntraDimension, ProfileName, ports
from armillary.trace import Trace

# An all-reduce of 1 GiB by ASTRA-sim 2, its chunk scheduling made reachable by a patch; the schedules of `ASTRA_SIM`.
TICKS = {
    "W-1D-350": (7_653_248,),
    "W-1D-500": (5_942_528, 5_943_168, 5_943_168),
    "W-1D-600": (5_276_672,),
    "W-2D": (9_137_920, 5_033_578, 6_755_468),
    "Conv-3D": (11_834_240, 10_071_880, 8_969_595),
    "Conv-4D": (4_856_448, 4_570_303, 4_506_354),
}


@pytest.fixture(scope="module")
def all_reduce() -> Trace:
    return workloads(WorkloadAssumptions(size=1 << 30))[ALL_REDUCE]


@pytest.mark.parametrize("name", MACHINES)
def test_astra_sim_takes_as_many_ticks(name: str, all_reduce: Trace) -> None:
    platform = machine(name, MachineAssumptions(), "astra-sim")
    # That program takes the GB/s of its files for GiB/s.
    scaled = tuple(replace(d, bandwidth=d.bandwidth * 2**30 / 1e9) for d in platform.dimensions)
    for ticks, (across, within) in zip(TICKS[name], ASTRA_SIM.values(), strict=False):
        assert within in get_args(IntraDimension)
        system = replace(platform.astra_sim, inter_dimension=across, intra_dimension=within)
        found = measure(all_reduce, replace(platform, dimensions=scaled, astra_sim=system), "astra-sim")
        assert found.total == found.exposed == ticks


@pytest.mark.parametrize("name", MACHINES)
def test_machines_have_512_npus_and_state_what_an_npu_has(name: str) -> None:
    platform = machine(name, MachineAssumptions(), "physical")
    assert platform.npus == NPUS
    stated = [block.bandwidth for block in MACHINES[name]]
    assert [port.out for port in ports(platform)] == pytest.approx(stated)
    if name in EQUALS:
        assert sum(stated) == MACHINES[EQUALS[name]][0].bandwidth


@pytest.mark.parametrize(
    ("profile", "per", "links"),
    [
        ("physical", "profile", [100, 100 / 7, 50]),
        ("astra-sim", "profile", [200, 100, 50]),
        ("physical", "link", [200, 100, 50]),
        ("astra-sim", "npu", [100, 100 / 7, 50]),
    ],
)
def test_a_bandwidth_is_that_of_an_npu_or_of_a_link(
    profile: ProfileName, per: str, links: list[float]
) -> None:
    platform = machine("Conv-3D", MachineAssumptions(per=per), profile)
    assert [dimension.bandwidth for dimension in platform.dimensions] == pytest.approx(links)
