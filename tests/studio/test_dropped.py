"""Files that are sent to the studio: they are read and simulated as the command does it, within limits."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("starlette")
pytest.importorskip("httpx2")
from starlette.testclient import TestClient

from armillary.base.allowed import allow
from armillary.cli import main
from armillary.studio.app import studio
from armillary.trace import GraphBuilder, Trace, write_trace

HOST = "127.0.0.1:8765"
TOKEN = "t" * 32
PYTORCH = Path(__file__).parents[2] / "examples" / "pytorch" / "traces"
BYTES = {"Content-Type": "application/octet-stream"}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    app = studio(TOKEN, (HOST,), warm=False)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with TestClient(app, base_url=f"http://{HOST}", headers=headers) as made:  # type: ignore[arg-type]
        yield made


@pytest.fixture
def chakra(tmp_path: Path) -> list[Path]:
    """A trace of four ranks; its communication has no recorded time."""
    builder = GraphBuilder()
    first = builder.compute("embed", duration_micros=120)
    shared = builder.all_reduce("sum", size="4 MiB", after=[first])
    builder.compute("head", flops=10**12, bytes="2 MiB", after=[shared])
    write_trace(tmp_path / "step", Trace.replicate(builder.graph(), ranks=4))
    return sorted(tmp_path.glob("step.*.et"))


def sent(client: TestClient, *files: Path) -> list[dict[str, str]]:
    found = []
    for file in files:
        answer = client.put(
            "/api/files", params={"name": file.name}, content=file.read_bytes(), headers=BYTES
        )
        assert answer.status_code == 201, answer.text
        assert answer.json()["bytes"] == file.stat().st_size
        found.append({key: answer.json()[key] for key in ("name", "id")})
    return found


def ran(client: TestClient, question: dict[str, Any]) -> dict[str, Any]:
    answer = client.post("/api/run", json=question)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def is_that_of_the_command(
    found: dict[str, Any], files: list[Path], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """Check an answer against the command line, the Python and the study that it gives, where the files lie."""
    monkeypatch.chdir(folder)
    place = folder / "traces" if " traces" in found["command"] else folder
    place.mkdir(exist_ok=True)
    for file in files:
        (place / file.name).write_bytes(file.read_bytes())
    for name, text in found["files"].items():
        (folder / name).write_text(text)
    made = CliRunner().invoke(main, found["command"].split()[1:])
    assert made.exit_code == 0, made.output
    assert found["headline"] in made.stdout.splitlines()
    names: dict[str, Any] = {}
    exec(found["python"], names)
    assert names["found"].total_ticks == round(found["prediction"]["step_time_s"] * 1e9)
    Path("study.yaml").write_text(found["study"])
    for line in found["study"].splitlines():
        if line.startswith("# `"):
            command = line.strip("# `").split()[1:]
            assert CliRunner().invoke(main, command).exit_code == 0, command
    again = CliRunner().invoke(main, ["run", "study.yaml"])
    assert found["headline"] in again.stdout.splitlines(), again.output


@pytest.mark.parametrize("more", [{"machine": "4xh100"}, {"machine": "4xh100", "peak": 2}], ids=str)
def test_a_chakra_trace_runs_as_by_the_command(
    client: TestClient, chakra: list[Path], more: dict[str, Any], tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    files = sent(client, *chakra)
    # The same contents are one file.
    assert len({file["id"] for file in files}) == 1
    about = client.post("/api/trace", json={"trace": files}).json()
    assert about == {"kind": "chakra", "ranks": 4, "world": 4, "nodes": 3, "recorded": False}
    found = ran(client, {"trace": files, **more})
    is_that_of_the_command(found, chakra, monkeypatch, tmp_path_factory.mktemp("taken"))


@pytest.mark.parametrize(
    ("names", "more"),
    [
        (["device_0.json.gz"], {}), (["device_0.json.gz"], {"machine": "2xh100", "from_one_rank": True}),
        (["device_0.json.gz", "device_1.json.gz", "host_0.json.gz", "host_1.json.gz"], {}),
        (["device_0.json.gz", "device_1.json.gz", "host_0.json.gz", "host_1.json.gz"], {"machine": "2xh100"}),
    ],
)  # fmt: skip
def test_a_trace_of_pytorch_runs_as_by_the_command(
    client: TestClient,
    names: list[str],
    more: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = [PYTORCH / name for name in names]
    question = {"trace": sent(client, *files), **more}
    found = ran(client, question)
    assert found["why"] and sum(found["prediction"]["parts_s"].values()) == pytest.approx(
        found["prediction"]["step_time_s"]
    )
    is_that_of_the_command(found, files, monkeypatch, tmp_path)
    timeline = client.post("/api/timeline", json=question).json()
    assert timeline["total_s"] == pytest.approx(found["prediction"]["step_time_s"])
    assert client.post("/api/network", json=question).json()["dimensions"]


def test_a_chakra_graph_as_json_is_one(client: TestClient, chakra: list[Path], tmp_path: Path) -> None:
    assert (
        CliRunner()
        .invoke(main, ["trace", "json", str(chakra[0]), "--out", str(tmp_path / "g.0.json")])
        .exit_code
        == 0
    )
    question = {"trace": sent(client, tmp_path / "g.0.json")}
    assert client.post("/api/trace", json=question).json()["kind"] == "chakra"
    assert ran(client, {**question, "machine": "1xh100"})["prediction"]["devices"] == 1


def test_what_the_command_refuses_is_refused_in_its_words(
    client: TestClient, chakra: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(chakra[0].parent)
    files = sent(client, *chakra)
    for more, options in (({}, []), ({"machine": "dgx-h100"}, ["--machine", "dgx-h100"])):
        refused = client.post("/api/run", json={"trace": files, **more})
        assert refused.status_code == 422
        made = CliRunner().invoke(main, ["run", "--workload", "step", *options])
        assert made.stderr == f"armillary: error: {refused.json()['error']}\n"
        assert made.exit_code == refused.json()["exit_code"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.0.et", b"\xff" * 300), ("a.0.et", b"\x08"), ("a.pt.trace.json", b"{"), ("a.json", b"[" * 5000),
        ("a.json", b'{"traceEvents": 5}'), ("a.json", b'{"schema": "1", "nodes": [{}]}'), ("a.json.gz", b"no gzip"),
        ("a.json.gz", gzip.compress(b"[" * 100_000, mtime=0)), ("a.exe", b"MZ"), ("a", bytes(range(256))),
        ("<img src=x onerror=alert(1)>.0.et", b"\xff"), ("-rf.et", b"x"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_refused_in_a_line(client: TestClient, name: str, content: bytes) -> None:
    answer = client.put("/api/files", params={"name": name}, content=content, headers=BYTES)
    assert answer.status_code == 201
    question = {"trace": [{key: answer.json()[key] for key in ("name", "id")}]}
    for kind in ("trace", "run", "timeline", "network"):
        refused = client.post(f"/api/{kind}", json=question)
        assert refused.status_code == 422, refused.text
        error = refused.json()["error"]
        assert (
            "\n" not in error
            and "fault" not in error
            and "/tmp" not in error
            and "armillary-dropped" not in error
        )


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x.et", "a/b.et", "a\\b.et", ".hidden", "x\0.et", "x\n.et", "y" * 300, "b\u202e.et"],
)
def test_only_plain_names_are_taken(client: TestClient, chakra: list[Path], name: str) -> None:
    assert client.put("/api/files", params={"name": name}, content=b"x", headers=BYTES).status_code == 422
    (file,) = sent(client, chakra[0])
    assert client.post("/api/run", json={"trace": [{**file, "name": name}]}).status_code == 422


def test_only_what_was_sent_can_be_named(client: TestClient, chakra: list[Path]) -> None:
    (file,) = sent(client, chakra[0])
    for trace in (
        [], {}, 5, "x", [5], [{}], [file, file], [{**file, "path": "/etc/passwd"}], [{**file, "id": "0" * 32}],
        [{**file, "id": "/etc/passwd"}], [{**file, "id": 5}], [["a.0.et", "/etc/passwd", True]], [file] * 5000,
    ):  # fmt: skip
        for kind in ("run", "train", "memory", "timeline"):
            refused = client.post(f"/api/{kind}", json={"trace": trace})
            assert refused.status_code in (413, 422), (trace, refused.text)
            assert "\n" not in refused.json()["error"]
    for more in (
        {"machine": "/etc/passwd"},
        {"fabric": 2},
        {"from_one_rank": 1},
        {"nonsense": 1},
        {"machine": 5},
    ):
        assert client.post("/api/run", json={"trace": [file], **more}).status_code == 422
    mixed = [file, {**file, "name": "other.1.et"}]
    assert "different traces" in client.post("/api/run", json={"trace": mixed}).json()["error"]


def test_files_have_limits(client: TestClient) -> None:
    with allow(limits=1e-6):
        large = client.put("/api/files", params={"name": "a.et"}, content=b"x" * 1000, headers=BYTES)
    assert large.status_code == 422 and "expected at most" in large.json()["error"]
    assert client.put("/api/files", params={"name": "a.et"}, content=b"", headers=BYTES).status_code == 422
    # A large one among many goes through the disk, not through memory, and its name does not stay.
    kept = client.put("/api/files", params={"name": "a.et"}, content=b"x" * 3_000_000, headers=BYTES)
    assert kept.status_code == 201


def test_older_files_go_when_newer_ones_need_the_room(
    chakra: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("armillary.studio.uploads.MOST_FILES", 2500)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    app: Any = studio(TOKEN, (HOST,), warm=False)
    with TestClient(app, base_url=f"http://{HOST}", headers=headers) as made:
        first = sent(made, chakra[0])
        for number in range(3):
            more = made.put(
                "/api/files", params={"name": f"{number}.et"}, content=bytes([number]) * 1000, headers=BYTES
            )
            assert more.status_code == 201
        gone = made.post("/api/run", json={"trace": first})
        assert gone.status_code == 422 and "drop it once more" in gone.json()["error"]
        assert (
            made.put("/api/files", params={"name": "z"}, content=b"x" * 2600, headers=BYTES).status_code
            == 422
        )


def test_nobody_else_sends_files(client: TestClient) -> None:
    for headers, status in (
        ({"Authorization": ""}, 401), ({"Host": "evil.example"}, 421), ({"Origin": "http://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403), ({"Content-Type": "text/plain"}, 415),
    ):  # fmt: skip
        answer = client.put("/api/files", params={"name": "a.et"}, content=b"x", headers={**BYTES, **headers})
        assert answer.status_code == status
    assert client.post("/api/files", params={"name": "a.et"}, json={}).status_code == 405


def test_what_changes_of_the_machine_do_is_what_the_page_of_a_run_says(
    client: TestClient, chakra: list[Path]
) -> None:
    question = {"trace": sent(client, *chakra), "machine": "4xh100"}
    job = client.post("/api/jobs", json={**question, "kind": "what-if"}).json()
    while job["state"] in ("waiting", "running"):
        job = client.get(f"/api/jobs/{job['id']}").json()
    assert job["state"] == "done", job
    (row,) = (each for each in job["result"]["rows"] if each["change"] == "kernels twice as fast")
    assert row["gain"] > 0.5
    assert json.dumps(job["events"]).count("kernels twice as fast") == 1
