"""What programs may ask of the studio: the same as the command, refused in the same words, and by nobody else."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("starlette")
pytest.importorskip("httpx2")
from starlette.testclient import TestClient

from armillary.cli import main
from armillary.studio.app import studio
from armillary.studio.guard import MOST_BODY
from armillary.studio.openapi import document

HOST = "127.0.0.1:8765"
TOKEN = "t" * 32
ASKED: dict[str, Any] = {
    "model": "llama-2-7b",
    "machine": "2xdgx-h100",
    "plan": {"batch": 32, "sequence": 1024},
}
CONFIG = {
    "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 8, "vocab_size": 1000,
    "intermediate_size": 512, "max_position_embeddings": 512,
}  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    app = studio(TOKEN, (HOST,), warm=False)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with TestClient(app, base_url=f"http://{HOST}", headers=headers) as made:  # type: ignore[arg-type]
        yield made


NETWORK = [
    {"name": "node", "topology": "Switch", "size": 4, "bandwidth": "450 GB/s", "latency": "1 us"},
    {"topology": "Torus", "shape": [2, 2], "bandwidth": "50 GB/s", "per": "link", "latency": "2 us"},
]


GRAPH = {
    "kind": "edges",
    "links": [
        *(
            {"from": f"npu {rank}", "to": f"leaf {rank // 2}", "bandwidth": "50 GB/s", "latency": "500 ns"}
            for rank in range(4)
        ),
        {"from": "leaf 0", "to": "leaf 1", "bandwidth": "25 GB/s", "latency": "1 us"},
    ],
}  # fmt: skip


def changed(**more: Any) -> dict[str, Any]:
    return {**ASKED, **more}


def test_a_step_is_that_of_the_command(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.json").write_text(json.dumps(CONFIG))
    own = changed(model="my.json", config=CONFIG, plan={"batch": 64, "sequence": 256, "parallel": {"tp": 2}})
    for question in (
        ASKED,
        own,
        changed(fabric=2, peak=1.5),
        changed(network=NETWORK),
        changed(network=NETWORK, fabric=2),
        {**own, "topology": GRAPH, "fabric": 2, "peak": 2},
        {**own, "topology": GRAPH, "fabric": 2, "peak": 2, "graph": "levels"},
    ):
        found = client.post("/api/train", json=question).json()
        for name, text in found["files"].items():
            (tmp_path / name).write_text(text)
        words = found["command"].split()[1:]
        made = CliRunner().invoke(main, [*words, "--json", "step.json"])
        assert made.exit_code == 0, made.output
        assert made.stdout.splitlines()[0] == found["headline"]
        told = json.loads(Path("step.json").read_text())
        # A machine of files is called by them there, and so is a device of a file.
        told["assumptions"] = [text for text in told["assumptions"] if "machine.yaml" not in text]
        drawn = {"network", "topology"} & {*question}
        told["machine"] = "machine.yaml" if drawn else question["machine"]
        found["prediction"]["assumptions"] = [
            text for text in found["prediction"]["assumptions"] if "machine.yaml" not in text
        ]
        assert told == found["prediction"]
        names: dict[str, Any] = {}
        exec(found["python"], names)
        assert names["found"].step_time_s == found["prediction"]["step_time_s"]


def test_a_study_is_simulated_to_the_same_time(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = client.post("/api/train", json=changed(fabric=2, peak=1.5)).json()
    Path("study.yaml").write_text(found["study"])
    for name, text in found["files"].items():
        Path(name).write_text(text)
    made = CliRunner().invoke(main, ["run", "study.yaml", "--json", "run.json"])
    assert made.exit_code == 0, made.output
    seconds = json.loads(Path("run.json").read_text())["finish_ns"] * 1e-9
    assert seconds == pytest.approx(found["prediction"]["step_time_s"], rel=0.02)


@pytest.mark.parametrize(
    ("plan", "options"),
    [
        ({"batch": 32, "parallel": {"tp": 3}}, "--batch 32 --tp 3"),
        ({"batch": 33, "parallel": {"tp": 2}}, "--batch 33 --tp 2"),
        (
            {"batch": 32, "numbers": {"compute": "fp8", "recipe": "mx"}},
            "--batch 32 --precision fp8 --recipe mx",
        ),
    ],
)
def test_a_wrong_plan_is_refused_in_the_words_of_the_command(
    client: TestClient, plan: dict[str, Any], options: str
) -> None:
    refused = client.post("/api/train", json=changed(plan=plan))
    assert refused.status_code == 422
    made = CliRunner().invoke(main, f"train {ASKED['model']} --machine {ASKED['machine']} {options}".split())
    assert made.stderr == f"armillary: error: {refused.json()['error']}\n"
    assert made.exit_code == refused.json()["exit_code"] == 2


@pytest.mark.parametrize(
    "question",
    [
        [], 5, {}, changed(model="/etc/passwd"), changed(machine="../x.yaml"), changed(machine="64x/etc/hosts.yaml"),
        changed(model=["a"]), changed(machine="9" * 300), changed(fabric=0), changed(fabric=1e9), changed(peak="fast"),
        changed(software="/etc/passwd.yaml"), changed(plan=5), changed(plan={}), changed(plan={"batch": "x"}),
        changed(plan={"batch": 8, "parallel": 5}), changed(plan={"batch": 8, "parallel": {"tp": [1]}}),
        changed(plan={"batch": 8, "tp": 2, "parallel": {"tp": 2}}),
        changed(plan={"batch": 8, "pipeline": {"schedule": {}}}),
        changed(plan={"batch": 2**62}), changed(plan={"batch": 8, "ranks": 3}),
        changed(plan={"batch": 8, "nonsense": 1}),
        changed(nonsense=1), changed(config=5), changed(config={}), changed(config={"model_type": "<script>"}),
        changed(config={**CONFIG, "num_hidden_layers": 10**9}), changed(config={**CONFIG, "hidden_size": -1}),
        changed(machine="dgx-h100", fabric=2), changed(plan={"batch": 8, "sequence": 10**18}),
        changed(network=[]), changed(network=5), changed(network=[5]), changed(network=NETWORK * 5),
        changed(network=[{**NETWORK[0], "in_network": {}}]), changed(network=[{**NETWORK[0], "size": 2**62}]),
        changed(network=[{**NETWORK[0], "bandwidth": "9" * 300}]), changed(network=[{"topology": "Switch"}]),
        changed(network=[{**NETWORK[0], "name": ["x"], "latency": {}}]),
        changed(network=[{**NETWORK[1], "shape": [[2]]}]),
        changed(topology=5), changed(topology={}), changed(topology={"kind": "file", "file": "/etc/passwd"}),
        changed(topology={"kind": "infragraph", "file": "/etc/passwd"}),
        changed(topology={**GRAPH, "table": "/etc/passwd"}),
        changed(topology={"kind": "edges", "links": GRAPH["links"] * 300}), changed(topology={**GRAPH, "links": [5]}),
        changed(topology=GRAPH, network=NETWORK), changed(topology={"kind": "hypercube", "order": 99}),
        changed(topology={"kind": "dimensions", "network": [{**NETWORK[0], "in_network": {}}]}),
        changed(topology={"kind": "edges", "links": [{**GRAPH["links"][0], "bandwidth": "fast"}]}),
        changed(topology={"kind": ["edges"], "links": []}),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_a_line(client: TestClient, question: Any) -> None:
    for kind in ("train", "timeline"):
        refused = client.post(f"/api/{kind}", json=question)
        assert refused.status_code in (422, 503), refused.text
        assert "\n" not in refused.json()["error"] and "fault" not in refused.json()["error"]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 5000, b'{"a":' * 3000, b"1" * 5000, b"NaN"])
def test_what_is_no_json_is_refused(client: TestClient, body: bytes) -> None:
    refused = client.post("/api/train", content=body, headers={"Content-Type": "application/json"})
    assert refused.status_code == 422 and refused.json()["error"]


def test_a_configuration_is_a_model(client: TestClient) -> None:
    name = "<img src=x onerror=alert(1)>.json"
    found = client.post("/api/train", json=changed(model=name, config=CONFIG)).json()
    assert found["prediction"]["model"] == "llama"
    assert f"'./{name}'" in found["command"]
    assert f"model: ./{name}" in found["study"]
    outside = client.post("/api/train", json=changed(model="../../x\\y.json", config=CONFIG)).json()
    assert " ./y.json " in outside["command"]


def test_views_agree_with_the_step(client: TestClient) -> None:
    step = client.post("/api/train", json=ASKED).json()["prediction"]
    timeline = client.post("/api/timeline", json=ASKED).json()
    # Short steps are simulated whole.
    assert timeline["said"] == "the whole step"
    assert timeline["total_s"] == pytest.approx(step["step_time_s"])
    assert sum(each["ranks"] for each in timeline["classes"]) == step["devices"]
    for lane in (lane for each in timeline["classes"] for lane in each["lanes"]):
        for share in (share for kind in lane.get("shares", []) for share in kind):
            assert 0 <= share <= 1.001
    part = client.post("/api/timeline", json={**ASKED, "from": 0.0, "to": timeline["total_s"] / 500}).json()
    spans = [span for each in part["classes"] for lane in each["lanes"] for span in lane.get("spans", [])]
    assert spans and all(low < part["to_s"] and high > 0 for low, high, _, _ in spans)
    memory = client.post("/api/memory", json=ASKED).json()
    assert memory["needed_bytes"] == step["memory"]["needed_bytes"] == sum(memory["at_peak_bytes"].values())
    at = sum(each[memory["at"]] for each in memory["bytes"].values())
    assert at == step["memory"]["peak_bytes"] == max(map(sum, zip(*memory["bytes"].values(), strict=True)))
    network = client.post("/api/network", json=ASKED).json()
    assert {each["dimension"] for each in network["dimensions"]} == {"nvlink", "fabric"}
    assert all(0 <= share <= 1.001 for each in network["heat"]["shares"] for share in each or ())


def finished(client: TestClient, question: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    job = client.post("/api/jobs", json=question)
    assert job.status_code == 202
    found, events, since = job.json(), [], 0
    while found["state"] in ("waiting", "running"):
        time.sleep(0.05)
        found = client.get(f"/api/jobs/{found['id']}?since={since}").json()
        events += found["events"]
        since = found["next"]
    return found, events


def test_the_effect_of_a_change_is_that_of_the_changed_step(client: TestClient) -> None:
    job, events = finished(client, {**ASKED, "kind": "what-if"})
    assert job["state"] == "done", job
    assert len(events) == len(job["result"]["rows"]) > 8
    base = client.post("/api/train", json=ASKED).json()["prediction"]
    row = next(each for each in job["result"]["rows"] if each["change"].startswith("microbatch 2"))
    plan = {key: value for key, value in base["plan"].items() if key != "ranks"}
    again = client.post(
        "/api/train", json=changed(plan={**plan, "microbatch": 2}, software=base["software"])
    ).json()
    assert again["prediction"]["step_time_s"] == row["step_time_s"]
    fabric = next(each for each in job["result"]["rows"] if each["fabric"] == 2)
    assert fabric["gain"] >= 0 and fabric["told_apart"] is None


@pytest.mark.slow
def test_a_search_tells_its_points(client: TestClient, tmp_path: Path) -> None:
    job, events = finished(client, {**ASKED, "kind": "plan"})
    assert job["state"] == "done", job
    points = [each["point"] for each in events]
    assert len(points) == job["result"]["simulated"]
    best = job["result"]["plans"][0]
    assert best["step_time_s"] == pytest.approx(min(point["step_time_s"] for point in points))
    words = f"plan {ASKED['model']} --machine {ASKED['machine']} --batch 32 --sequence 1024"
    words += f" --json {tmp_path / 'plan.json'}"
    assert CliRunner().invoke(main, words.split()).exit_code == 0
    told = json.loads((tmp_path / "plan.json").read_text())
    assert [each["step_time_s"] for each in told["plans"]] == [
        each["step_time_s"] for each in job["result"]["plans"]
    ]


def test_a_job_is_ended(client: TestClient) -> None:
    job = client.post("/api/jobs", json={**ASKED, "kind": "plan"}).json()
    assert client.delete(f"/api/jobs/{job['id']}").json()["state"] == "cancelled"
    assert client.get(f"/api/jobs/{job['id']}").json()["state"] == "cancelled"
    assert client.get("/api/jobs/999").status_code == 404
    assert client.post("/api/jobs", json={**ASKED, "kind": "rm"}).status_code == 422


def test_the_catalogue_has_what_can_be_asked(client: TestClient) -> None:
    answer = client.get("/api/catalogue")
    assert answer.status_code == 200, answer.text
    found = answer.json()
    machines = {each["name"]: each for each in found["machines"]}
    assert machines["dgx-h100"]["devices"] == 8 and "llama-2-7b" in {each["name"] for each in found["models"]}
    rails = machines["rail-only-h100"]
    assert (
        rails["devices"] == 1024
        and rails["topology"]["kind"] == "rail-optimised"
        and rails["begin"] == {"hosts": 4}
    )
    assert {"hosts", "npus_per_host"} <= {each["key"] for each in found["graphs"]["rail-optimised"]}
    assert all("file" not in each["key"] for keys in found["graphs"].values() for each in keys)


def test_a_graph_is_drawn(client: TestClient) -> None:
    found = client.post("/api/topology", json={"topology": GRAPH}).json()
    assert (found["npus"], found["nodes"], found["links"]) == (4, 6, 10) and found["edges"] == GRAPH
    (panel,) = found["panels"]
    assert {mark[4] for mark in panel["marks"] if mark[2] != "row"} == {
        "leaf 0",
        "leaf 1",
        *(f"npu {rank}" for rank in range(4)),
    }
    assert len(panel["lines"]) == 5
    # Links that lead one way, or twice, are drawn as they are; and so are the graphs of presets.
    odd = {
        "kind": "edges",
        "links": [*GRAPH["links"], {**GRAPH["links"][0], "way": "one"}, GRAPH["links"][1]],
        "forward": True,
    }
    again = client.post("/api/topology", json={"topology": odd}).json()["edges"]
    key = lambda link: sorted(link.items())  # noqa: E731
    assert sorted(again["links"], key=key) == sorted(odd["links"], key=key) and again["forward"]
    whole = client.post("/api/topology", json={"machine": "rail-only-h100"}).json()
    assert whole["npus"] == 1024 and whole["edges"] is None and len(whole["panels"]) == 2
    for bad in (
        {},
        {"machine": "dgx-h100"},
        {"machine": 5},
        {"topology": {"kind": "edges", "links": []}},
        {"x": 1},
    ):
        refused = client.post("/api/topology", json=bad)
        assert refused.status_code == 422 and "\n" not in refused.json()["error"], bad
    worse = {**GRAPH, "links": [{**GRAPH["links"][0], "bandwidth": "fast"}]}
    told = client.post("/api/topology", json={"topology": worse}).json()["error"]
    assert told.startswith("platform file: platform.topology.links[0]: bandwidth: got 'fast'")


def test_nobody_else_is_answered(client: TestClient) -> None:
    for headers, status in (
        ({"Authorization": ""}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Host": "evil.example:8765"}, 421),
        ({"Host": "127.0.0.1:9999"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ):
        assert client.get("/api/catalogue", headers=headers).status_code == status
        assert client.get("/api/openapi.json", headers=headers).status_code == status
    assert client.get(f"/api/catalogue?token={TOKEN}", headers={"Authorization": ""}).status_code == 401
    plain = {"Content-Type": "text/plain"}
    assert client.post("/api/train", content=json.dumps(ASKED), headers=plain).status_code == 415
    assert client.get("/studio.js", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    large = client.post(
        "/api/train", content=b" " * (MOST_BODY + 1), headers={"Content-Type": "application/json"}
    )
    assert large.status_code == 413
    assert client.options("/api/train", headers={"Origin": "http://evil.example"}).status_code == 403


def test_every_answer_says_what_a_page_may_do(client: TestClient) -> None:
    for path in (
        "/",
        "/studio.js",
        "/charts.js",
        "/studio.css",
        "/THIRD-PARTY.txt",
        "/api/catalogue",
        "/nothing",
    ):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["referrer-policy"] == "no-referrer"
        assert not [name for name in headers if name.startswith("access-control")]
    assert TOKEN not in client.get("/").text


def test_the_description_has_every_address() -> None:
    app: Any = studio(TOKEN, (HOST,), warm=False)
    routes = {route.path for route in app.app.routes if route.path.startswith("/api/")}
    assert routes == set(document()["paths"])
    schemas = set(document()["components"]["schemas"])
    text = json.dumps(document())
    assert {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]} <= schemas
