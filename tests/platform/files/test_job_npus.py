"""The key `jobs` of study files: which NPUs each job gets, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from armillary.base.errors import InputError
from armillary.platform import json_schema, load_study
from armillary.platform.files.native import Study

MACHINE = """
platform:
  network: [{topology: Switch, size: 16, bandwidth: 50 GB/s, latency: 1 us}]
"""
WORK = "workload: {collective: all-reduce, size: 1 MiB}"


def study(folder: Path, *jobs: str, more: str = "") -> Study:
    path = folder / "study.yaml"
    path.write_text("jobs:\n" + "".join(f"  - {{{job}}}\n" for job in jobs) + more + MACHINE)
    return load_study(path)


@pytest.mark.parametrize(
    ("npus", "expected"),
    [
        ("4", (0, 1, 2, 3)),
        ("'3'", (3,)),
        ("2-4,0", (2, 3, 4, 0)),
        ("[7, 2]", (7, 2)),
        ("{count: 3}", (0, 1, 2)),
        ("{first: 2, count: 3, stride: 4}", (2, 6, 10)),
        ("{count: 4, placement: scattered}", (0, 4, 8, 12)),
        ("{count: 3, placement: packed}", (0, 1, 2)),
    ],
)
def test_ways_to_say_which_npus(tmp_path: Path, npus: str, expected: tuple[int, ...]) -> None:
    npus = f"'{npus}'" if "-" in npus else npus
    (job,) = study(tmp_path, f"{WORK}, npus: {npus}").jobs
    assert (job.name, job.npus, job.arrival_ns, job.work.ranks) == ("job0", expected, 0, len(expected))


def test_counted_npus_are_those_that_jobs_before_left(tmp_path: Path) -> None:
    jobs = study(
        tmp_path,
        f"{WORK}, npus: [0, 2]",
        f"{WORK}, npus: 3",
        f"{WORK}, npus: {{count: 4, placement: random, seed: 5}}",
        f"{WORK}, npus: {{count: 7, placement: scattered}}",
        f"{WORK}, npus: 0-15, arrival: 5 ms",
    ).jobs
    assert jobs[1].npus == (1, 3, 4)
    assert len(set(jobs[2].npus)) == 4 and not {0, 1, 2, 3, 4} & set(jobs[2].npus)
    assert sorted(npu for job in jobs[:4] for npu in job.npus) == list(range(16))
    again = study(tmp_path, f"{WORK}, npus: {{count: 4, placement: random, seed: 5}}")
    assert again.jobs == study(tmp_path, f"{WORK}, npus: {{count: 4, placement: random, seed: 5}}").jobs
    other = study(tmp_path, f"{WORK}, npus: {{count: 4, placement: random, seed: 6}}")
    assert other.jobs[0].npus != again.jobs[0].npus
    assert jobs[4].npus == tuple(range(16)) and jobs[4].arrival_ns == 5_000_000


def test_a_job_that_repeats_is_several_on_the_same_npus(tmp_path: Path) -> None:
    jobs = study(tmp_path, f"name: x, {WORK}, npus: 2, arrival: 1 ms, repeat: 3, every: 4 ms").jobs
    assert [(job.name, job.npus, job.arrival_ns) for job in jobs] == [
        (f"x.{i}", (0, 1), 1_000_000 + i * 4_000_000) for i in range(3)
    ]


@pytest.mark.parametrize(
    ("jobs", "more", "message"),
    [
        (
            (f"{WORK}, npus: 17",),
            "",
            ":2: jobs[0].npus: got 17 NPUs, expected at most 16: the machine has 16",
        ),
        (
            (f"{WORK}, npus: 10", f"{WORK}, npus: 7"),
            "",
            ":3: jobs[1].npus: got 7 NPUs, expected at most 6: the machine has 16, jobs before have 10",
        ),
        ((f"{WORK}, npus: [1, 16]",), "", ":2: jobs[0].npus: got NPU 16, expected 0 to 15"),
        (
            (f"{WORK}, npus: 3-99999999999",),
            "",
            "jobs[0].npus: got '3-99999999999', expected a number of NPUs",
        ),
        ((f"{WORK}, npus: 3-999999999",), "", "jobs[0].npus: got NPU 16, expected 0 to 15"),
        ((f"{WORK}, npus: [1, 2, 1]",), "", "jobs[0].npus: NPU 1 is given twice, expected each NPU once"),
        (
            (f"{WORK}, npus: {{first: 4, count: 4, stride: 4}}",),
            "",
            "jobs[0].npus: got NPU 16, expected 0 to 15",
        ),
        ((f"{WORK}, npus: {{cuont: 4}}",), "", "jobs[0].npus.cuont: unknown key (did you mean 'count'?)"),
        (
            (f"{WORK}, npus: {{count: 4, placement: scatered}}",),
            "",
            "got 'scatered', expected one of packed, scattered, random (did you mean 'scattered'?)",
        ),
        (
            (f"{WORK}, npus: 0",),
            "",
            "jobs[0].npus: got 0, expected a number of NPUs, text such as '0-7, 16-23'",
        ),
        ((f"{WORK}, npus: []",), "", "jobs[0].npus: got [], expected a number of NPUs"),
        ((f"{WORK}, npus: true",), "", "jobs[0].npus: got True, expected a number of NPUs"),
        ((f"{WORK}, npus: 5-2",), "", "jobs[0].npus: got '5-2', expected a number of NPUs"),
        ((WORK,), "", "study.yaml:2: missing key 'npus' in jobs[0]"),
        ((f"{WORK}, npus: 2, arival: 5 ms",), "", "jobs[0].arival: unknown key (did you mean 'arrival'?)"),
        ((f"{WORK}, npus: 2, repeat: 2",), "", "jobs[0]: expected repeat, 2 or more, and every together"),
        (
            (f"name: a, {WORK}, npus: 2",) * 2,
            "",
            "jobs[1].name: got 'a' again, expected another for each job",
        ),
        ((f"{WORK}, npus: 2",), WORK + "\n", "expected either workload or jobs, not both"),
        ((f"{WORK}, npus: 2",), "profile: astra-sim\n", "jobs: profile astra-sim does not model this"),
        (("workload: {generate: 3}, npus: 2",), "", "jobs[0].workload.generate: got 3, expected a mapping"),
    ],
)
def test_mistakes(tmp_path: Path, jobs: tuple[str, ...], more: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        study(tmp_path, *jobs, more=more)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_no_job(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("jobs: []" + MACHINE)
    with pytest.raises(InputError, match=r"s.yaml:1: jobs: got \[\], expected at least one entry"):
        load_study(tmp_path / "s.yaml")


def test_the_schema_knows_jobs() -> None:
    schema = json_schema()
    assert {"name", "workload", "npus", "arrival", "repeat", "every"} == set(
        schema["$defs"]["Job"]["properties"]
    )
    assert schema["$defs"]["Job"]["required"] == ["workload", "npus"]
