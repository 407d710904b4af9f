"""The program of ASTRA-sim's HTSim back end: its flags, its inputs, its lines."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

TOPO = """\
# upstream's example of 8 nodes, with half of them
Nodes 4
Tiers 2
Podsize 4
Tier 0
Downlink_speed_Gbps {speed}
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 1000
Tier 1
Downlink_speed_Gbps 100
Radix_Down 2
Downlink_Latency_ns 1000
"""
FLAGS = (
    "astra-sim htsim --workload-configuration=step --system-configuration=system.json "
    "--network-configuration=network.yml --remote-memory-configuration=memory.json"
)
OPTIONS = "--htsim_opts -topo four.topo -nodes 4"


@pytest.fixture
def tree(inputs: Path) -> Path:
    (inputs / "four.topo").write_text(TOPO.format(speed=100))
    return inputs


def test_its_own_lines_stand_around_those_of_ranks(tree, call):
    result = call(f"{FLAGS} {OPTIONS} -sub 2 COUPLED_EPSILON 4 -o out.dat")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[:7] == [
        "-topo four.topo -nodes 4 -sub 2 COUPLED_EPSILON 4 -o out.dat",
        "FatTree topology input file: four.topo",
        "Using subflow count 2",
        "requested nodes 4",
        "Using algo=COUPLED_EPSILON epsilon=4",
        "Logging to out.dat",
        "actual nodes 4",
    ]
    assert lines[-2:] == ["HTSim stopping simulation...", "Simulation of events finished"]
    assert all(line.startswith("[20") for line in lines[7:-2])
    assert sum("finished, " in line for line in lines) == 4
    for words in (
        "-sub 2 has no effect",
        "COUPLED_EPSILON has no effect",
        "out.dat: not written",
        "stands for htsim",
    ):
        assert words in result.stderr
    assert "FatTree" not in Path("log/log.log").read_text()


def test_hosts_have_htsims_rate(tree, call):
    slow = call(f"{FLAGS} --terse --network-model=flow {OPTIONS}")
    assert "hosts send at" not in slow.stderr
    (tree / "four.topo").write_text(TOPO.format(speed=400))
    fast = call(f"{FLAGS} --terse --network-model=flow {OPTIONS}")
    assert "hosts send at 100 Gb/s, htsim's own rate of NICs, not at the 400 Gb/s of tier 0" in fast.stderr
    assert fast.stdout == slow.stdout


def test_tcp_is_slower_than_flows(tree, call):
    times = {
        model: int(call(f"{FLAGS} --terse --network-model={model} {OPTIONS}").stdout.split()[2])
        for model in ("packet", "flow")
    }
    # Windows grow from ten segments, and queues of eight packets drop.
    assert times["flow"] < times["packet"] < 10 * times["flow"]


def test_the_program_at_its_path(tree, call):
    assert call("astra-sim install there").exit_code == 0
    program = tree / "there/build/astra_htsim/build/bin/AstraSim_HTSim"
    words = [*FLAGS.split()[2:], "--htsim-proto=tcp", "--terse", *OPTIONS.split()]
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False, cwd=tree)
    assert done.returncode == 0 and done.stdout.startswith("sys[0] finished, "), done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "missing option '-topo'"),
        ("--htsim_opts -topo", "-topo: 0 values, expected 1"),
        (
            "--htsim_opts -topo fuor.topo",
            "fuor.topo: no such file (htsim topology) (did you mean 'four.topo'?)",
        ),
        ("--htsim_opts -tpo four.topo", "(did you mean '-topo'?)"),
        ("--htsim_opts -topo four.topo -nodes 8", "-nodes: got 8, expected 4"),
        ("--htsim_opts -topo four.topo -sub many", "-sub: got 'many', expected a whole number"),
        ("--htsim-proto=ueta --htsim_opts -topo four.topo", "'ueta' is not one of 'tcp', 'uet'"),
    ],
)
def test_bad_options_are_one_line(tree, call, options, words):
    result = call(f"{FLAGS} {options}")
    assert result.exit_code == 2 and words in result.stderr and not Path("log").exists(), result.output


def test_another_number_of_ranks(tree, call):
    network = json.loads(Path("network.yml").read_text()) | {"npus_count": [8]}
    Path("network.yml").write_text(json.dumps(network))
    result = call(f"{FLAGS} {OPTIONS}")
    assert (
        result.exit_code == 2
        and "four.topo: Nodes: got 4, expected 8, the product of npus_count" in result.stderr
    )


def test_ultra_ethernet_sprays_and_trims(tree, call):
    plain = call(f"{FLAGS} --terse --htsim-proto=uet {OPTIONS}")
    assert plain.exit_code == 0, plain.output
    assert "nscc of network model packet" in plain.stderr
    assert "load balancing mixed is simulated as reps" in plain.stderr
    words = f"{OPTIONS} -tiers 2 -load_balancing_algo reps -linkspeed 200000 -q 40 -ecn 8 32 -end 5"
    fast = call(f"{FLAGS} --terse --htsim-proto=uet {words}")
    assert "without effect: -end" in fast.stderr and "at 200 Gb/s" in fast.stderr
    by_receiver = call(f"{FLAGS} --terse --htsim-proto=uet {OPTIONS} -receiver_cc_only -disable_trim")
    assert "rccc of network model packet" in by_receiver.stderr
    ticks = [int(each.stdout.split()[2]) for each in (plain, fast, by_receiver)]
    assert ticks[1] < ticks[0] and ticks[2] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("-sender_cc_algo dctcp", "-sender_cc_algo: got 'dctcp', expected nscc"),
        ("-sender_cc_only -receiver_cc", "expected -sender_cc -receiver_cc for both"),
        ("-tiers 3", "-tiers: got 3, expected 2, the Tiers of four.topo"),
        ("-ecn 8", "-ecn: 1 values, expected 2"),
        ("-load_balancing_algo rep", "did you mean 'reps'"),
        ("-path 64", "did you mean '-paths'"),
        ("-paths 48", "-paths: got 48, expected a power of two"),
        ("-mtu 64", "-mtu: got '64', expected a whole number from 65 to 65536"),
    ],
)
def test_options_of_ultra_ethernet_that_are_refused(tree, call, options, message):
    result = call(f"{FLAGS} --htsim-proto=uet {OPTIONS} {options}")
    assert result.exit_code == 2 and message in result.stderr, result.output
