"""Workers start the programs of a study if whoever started the run allows it, and keep nothing of it if not."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import armillary
from armillary.base.errors import ConsentError
from armillary.explore.runner.run import run
from armillary.explore.runner.store import Store
from armillary.explore.sweep.load import load_sweep

MODEL = """
import json, sys
for number, line in enumerate(sys.stdin):
    if number:
        print(json.dumps({"id": number - 1, "ns": 1000}))
"""


def sweep_file(folder: Path) -> Path:
    (folder / "model.py").write_text(MODEL)
    (folder / "sweep.yaml").write_text(
        f"""
study:
  workload: {{generate: {{model: llama-2-7b, batch: 8, sequence: 128, parallel: {{tp: 8}}}}}}
  platform:
    preset: hgx-h100
    compute: {{model: subprocess, command: [{sys.executable}, {folder}/model.py]}}
vary:
  workload.generate.sequence: [64, 128]
"""
    )
    return folder / "sweep.yaml"


def statuses(folder: Path, executor: str | ThreadPoolExecutor) -> list[str]:
    sweep = load_sweep(sweep_file(folder))
    with Store(folder / "store.db") as store:
        try:
            run(sweep, sweep.space.points(), store, executor=executor, workers=1)
        finally:
            found = [row.status for row in store.rows()]
    return found


@pytest.mark.parametrize(
    "kind", ["serial", "processes", "threads", pytest.param("dask", marks=pytest.mark.slow)]
)
def test_consent_reaches_workers(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "dask":
        pytest.importorskip("distributed", reason="Dask is not installed: pip install armillary[dask]")
        monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with ThreadPoolExecutor(1) as threads:
        executor = threads if kind == "threads" else kind
        with pytest.raises(ConsentError, match=r"names the program '.*python.*--allow-programs"):
            statuses(tmp_path, executor)
        # Nothing of the first run is known to the second one.
        with armillary.allow(programs=True):
            assert statuses(tmp_path, executor) == ["ok", "ok"]
