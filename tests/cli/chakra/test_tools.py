"""`armillary chakra`: the flags of each tool of mlcommons/chakra 1.0.0."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import networkx
import pytest

from armillary.cli.chakra import SUBCOMMANDS
from armillary.trace import load_trace, read_graph

TEXT = """\
MICRO
1
conv1 -1 1000 NONE 0 1000 NONE 0 1000 ALLREDUCE 65536 100
"""


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_spelling(call, name):
    for spelling in (name, f"chakra_{name}", name.replace("_", "-"), f"chakra-{name.replace('_', '-')}"):
        result = call(f"chakra {spelling} --help")
        assert result.exit_code == 0 and SUBCOMMANDS[name].split(",")[0] in result.stdout.replace("\n ", "")


def test_no_such_tool(call):
    result = call("chakra chakra_jsoniser")
    assert result.exit_code == 2 and "did you mean 'jsonizer'" in result.stderr


def test_jsonizer(inputs, call):
    result = call("chakra chakra_jsonizer --input_filename step.0.et --output_filename step.json")
    assert result.stderr == "wrote step.json: 2 nodes\n"
    assert len(json.loads(Path("step.json").read_text())["nodes"]) == 2


def test_jsonizer_writes_json_whatever_the_name(inputs, call):
    call("chakra jsonizer --input_filename step.0.et --output_filename step.txt")
    assert json.loads(Path("step.txt").read_text())["format"] == "armillary-trace-1"


def test_visualizer(inputs, call):
    for suffix in ("pdf", "dot", "graphml"):
        result = call(f"chakra chakra_visualizer --input_filename step.0.et --output_filename step.{suffix}")
        assert result.exit_code == 0, result.output
    assert Path("step.pdf").read_bytes().startswith(b"%PDF")
    assert {d["label"] for _, d in networkx.read_graphml("step.graphml").nodes(data=True)} == {"work", "sum"}
    assert list(inputs.glob("step.dot*")) == [inputs / "step.dot"]
    result = call("chakra visualizer --input_filename step.0.et --output_filename step.0.et/step.dot")
    assert result.exit_code == 2 and "--output_filename step.0.et/step.dot: " in result.stderr


def test_timeline_visualizer(inputs, call):
    lines = [
        "start",
        "issue,n=0,c=0,i=1,m=COMP_NODE",
        "callback,n=0,c=1500,i=1,m=COMP_NODE",
        "issue,n=0,c=2,i=2,m=x",
    ]
    Path("log.csv").write_text("\n".join(lines))
    words = "chakra chakra_timeline_visualizer --input_filename log.csv --output_filename t.json --num_npus 4"
    result = call(f"{words} --npu_frequency 1500 --log_filename debug.log")
    assert result.stderr.splitlines() == [
        "warning: 1 nodes were issued and have no callback: left out",
        "warning: 1 lines are no issue and no callback: left out",
        "wrote t.json: 1 nodes",
    ]
    (event,) = (
        event for event in json.loads(Path("t.json").read_text())["traceEvents"] if event["ph"] == "X"
    )
    assert (event["ts"], event["dur"]) == (0.0, 1.0)
    assert call(f"{words} --npu_frequency fast").exit_code == 2


def test_generator(inputs, call):
    Path("out").mkdir()
    result = call(
        "chakra chakra_generator --num_npus 2 --default_runtime 7 --default_tensor_size 8 --default_comm_size 9 "
        "--output out"
    )
    assert result.stderr == "wrote 14 families of 2 ranks to out\n"
    assert len(list(Path("out").iterdir())) == 28
    assert read_graph("out/one_comp_node.1.et").duration_micros.tolist() == [7]
    assert call("chakra generator --num_npus 1").exit_code == 0
    assert Path("BARRIER.0.et").exists()


@pytest.mark.parametrize(
    "family", ["one_comm_send_node", "one_comm_recv_node", "ALL_TO_ALL", "one_comp_node"]
)
def test_what_the_generator_writes_can_run(inputs, call, family):
    call("chakra generator --num_npus 4")
    study = Path("study.yaml").read_text()
    Path("study.yaml").write_text(study.replace("trace: step", f"trace: {family}"))
    result = call("run study.yaml --json out.json")
    assert result.exit_code == 0, result.output
    assert json.loads(Path("out.json").read_text())["finish_ticks"] > 0


def test_converter_text(inputs, call):
    Path("work.txt").write_text(TEXT)
    result = call("chakra chakra_converter Text --input work.txt --output work --num-npus 4 --num-passes 2")
    assert result.exit_code == 0, result.output
    trace = load_trace("work")
    assert trace.n_ranks == 4
    once = call(
        "chakra converter --log-filename x.log Text --input work.txt --output one --num-npus 4 --num-passes 1"
    )
    assert once.exit_code == 0 and not Path("x.log").exists()
    assert trace.graph(0).n_nodes == 2 * load_trace("one").graph(0).n_nodes
    assert (
        call("chakra converter Text --input work.txt --output one --num-npus 0 --num-passes 1").exit_code == 2
    )


def test_bad_input(inputs, call):
    Path("bad.json").write_text("{")
    link = "chakra trace_link --rank 0 --chakra-host-trace bad.json --chakra-device-trace bad.json"
    for words in (
        f"{link} --output-file out.json",
        "chakra converter PyTorch --input bad.json --output out.et",
    ):
        result = call(words)
        assert result.exit_code == 2 and "bad.json" in result.stderr and "Traceback" not in result.stderr
    assert not list(Path().glob("out.*"))


@pytest.mark.shared
def test_link_and_convert_a_real_pair(shared, inputs, call):
    """The run on CPUs that chakra_trace_link cannot read."""
    for side in ("host", "device"):
        packed = (shared / "traces" / "torch_cpu" / "coll2" / f"{side}_0.json.gz").read_bytes()
        Path(f"{side}.json").write_bytes(gzip.decompress(packed))
    for flags in (
        "--chakra-host-trace host.json --chakra-device-trace",
        "--pytorch-et-file host.json --kineto-file",
    ):
        result = call(
            f"chakra chakra_trace_link --rank 0 --log-level INFO {flags} device.json --output-file both.json"
        )
        assert result.exit_code == 0, result.output
        assert "wrote both.json: linked 100.0 %" in result.stderr
    result = call("chakra chakra_converter PyTorch --input both.json --output both.et --simulate")
    assert result.exit_code == 0, result.output
    assert "as soon as dependencies allow: " in result.stdout
    assert "COMM_COLL_NODE" in call("trace info both.et").stdout
