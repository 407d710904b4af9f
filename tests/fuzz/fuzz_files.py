# ruff: noqa: E501 - a target is a row
"""The readers of studies, machines, models, measurements and stores, as rows for the fuzzer."""

from __future__ import annotations

import gzip
import itertools
import json
import tempfile
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fuzz_mutations as mutate
import fuzz_named
import fuzz_runs
import fuzz_seeds as seeds
import numpy as np
from fuzz_stores import store, store_of, stored, trials, trials_of

import armillary
from armillary.base import allowed
from armillary.base.document import read_document
from armillary.base.errors import ArmillaryError
from armillary.capture import trace_of
from armillary.capture.rank_files import read as read_rank
from armillary.collective.fitted.read import load_fit
from armillary.compute.gpu.device import load_gpu
from armillary.compute.machine import machine_of
from armillary.compute.table_file import read_table
from armillary.convert.collected import read_collected
from armillary.engine.common.timeline import Timeline
from armillary.evidence.calibrate.attention import read_prefills, read_shares
from armillary.evidence.calibrate.loaded import read_loaded
from armillary.evidence.calibrate.nccl_tables import read_file
from armillary.evidence.calibrate.observe.profile import read_profile
from armillary.evidence.calibrate.observe.read import observe
from armillary.evidence.calibrate.observe.steps import read_steps
from armillary.evidence.validate.gemm import run_gemm
from armillary.evidence.validate.silicon import read_cases as read_cases_of_silicon
from armillary.evidence.validate.sim_to_real import read_points
from armillary.evidence.validate.sniff import headers, suite_of
from armillary.evidence.validate.suites import suites
from armillary.evidence.validate.training.formats import read_cases
from armillary.explore.codesign.load import load_codesign
from armillary.explore.codesign.worth import worth
from armillary.explore.compare.sides import read_side
from armillary.explore.cost.schema import load_costs
from armillary.explore.exchange import read_routing
from armillary.explore.sweep.evaluate import evaluate_study
from armillary.explore.sweep.load import load_sweep
from armillary.explore.training.among import read_plans
from armillary.explore.training.train import plan_of
from armillary.explore.whole_run.failures import load_failures
from armillary.lab.learned.requests import read_request
from armillary.lab.obfuscation.restoring import read_legend
from armillary.platform.files.astra_sim import read_platform
from armillary.platform.files.astra_sim_service import read_service
from armillary.platform.files.htsim_machine import read_htsim_machine
from armillary.platform.files.infragraph import read_infragraph
from armillary.platform.files.native import load_platform, load_study
from armillary.platform.files.ns3_config import read_ns3_machine
from armillary.platform.files.topology import read_graph as read_edges
from armillary.platform.show import table as shown_platform
from armillary.report.issue_log import write_issue_log
from armillary.serving.load import load_requests
from armillary.serving.profile import profile_table
from armillary.serving.replica import Engine, serve_replica
from armillary.serving.routed import read_counts
from armillary.serving.step_table import StepTable
from armillary.studio.drawn import picture
from armillary.studio.question import command_line, python, read_question
from armillary.trace import GraphBuilder, Trace, load_trace, write_trace
from armillary.trace.chakra_messages import et_def, open_messages, read_message
from armillary.workload.models import from_hugging_face, load_model, parameters

PACKAGE = Path(armillary.__file__).parent
Read = Callable[[Path], object]
Target = tuple[str, str, Callable[[], Sequence[bytes]], Sequence[mutate.Mutation], Read]


def rows() -> list[Target]:
    """Return name, file, seeds, mutations and reader of each."""
    yaml, text = mutate.YAML, mutate.TEXT
    presets = packed("workload/presets/*.yaml")
    return [
        ("study", "study.yaml", made(seeds.STUDY, seeds.GRAPHS, seeds.GENERATED), yaml, study),
        ("platform", "machine.yaml", made(seeds.STUDY, seeds.GRAPHS, seeds.PRESET), yaml, platform),
        ("edges", "edges.csv", made(seeds.EDGES), text, edges),
        ("edges-yaml", "edges.yaml", made(seeds.LINKS), yaml, edges),
        ("infragraph", "infra.yaml", made(seeds.INFRAGRAPH), yaml, infragraph),
        ("astra-service", "config.json", made(*seeds.SERVICE), mutate.JSON, read_service),
        ("messages", "step.0.et", lambda: [seeds.MESSAGES], mutate.BYTES, messages),
        ("ns3-topology", "star.txt", made(seeds.STAR), text, edges),
        ("ns3-config", "config.txt", made(seeds.NS3), text, ns3_config),
        ("htsim-topology", "tree.topo", made(seeds.TREE), text, edges),
        ("edges-graphml", "edges.graphml", made(seeds.GRAPHML), text, edges),
        ("astra-network", "network.yml", made(seeds.NETWORK), yaml, partial(astra, "network")),
        ("astra-1-network", "network.json", made(seeds.NETWORK_1), yaml, partial(astra, "network")),
        ("astra-1-system", "system.txt", made(seeds.SYSTEM_1), text, partial(astra, "system")),
        ("htsim-options", "options", made(seeds.HTSIM, seeds.UET), text, htsim_options),
        ("astra-system", "system.json", made(seeds.SYSTEM), mutate.JSON, partial(astra, "system")),
        ("astra-memory", "memory.json", made(seeds.MEMORY), mutate.JSON, partial(astra, "memory")),
        ("astra-groups", "groups.json", made({"1": [0, 1, 2], "2": [3, 7]}), mutate.JSON, partial(astra, "comm_groups")),
        ("sweep", "sweep.yaml", made(seeds.SWEEP), yaml, sweep),
        ("mix", "mix.yaml", made(seeds.MIX), yaml, mix),
        ("side", "side.yaml", made(seeds.STUDY, seeds.GRAPHS), yaml, side),
        ("evaluated", "study.yaml", made(seeds.STUDY, seeds.GRAPHS), yaml, evaluated),
        ("costs", "costs.yaml", made(seeds.COSTS, "preset: h100\n"), yaml, load_costs),
        ("failures", "failures.yaml", made(seeds.FAILURES), yaml, lambda path: load_failures(str(path))),
        ("plans", "plans.yaml", made(seeds.PLANS), yaml, read_plans),
        ("learn-plan", "request.yaml", made(seeds.REQUEST), yaml, read_request),
        ("model", "model.yaml", presets, yaml, lambda path: parameters(load_model(path))),
        ("config", "config.json", made(seeds.CONFIG, seeds.EXPERTS), mutate.JSON, lambda path: parameters(from_hugging_face(path))),
        ("question", "question.json", made(seeds.QUESTION, {**seeds.QUESTION, "config": seeds.CONFIG}, {**seeds.QUESTION, "topology": seeds.DRAWN}), mutate.JSON, question),
        ("device", "device.yaml", packed("compute/gpu/devices/*.yaml"), yaml, lambda path: load_gpu(str(path))),
        ("fit", "fit.yaml", packed("collective/fitted/fits/*.yaml"), yaml, fit),
        ("gemm-table", "gemm.csv", made(seeds.GEMMS), text, lambda path: read_table(path, {"time": "us"}, 1000.0, "bf16")),
        ("validated-gemms", "gemms.csv", made(seeds.LATENCIES), text, lambda path: run_gemm([path], lambda *_: None)),
        ("prefills", "prefills.csv", made(seeds.PREFILLS), text, read_prefills),
        ("shares", "shares.json", made(seeds.SHARES), mutate.JSON, read_shares),
        ("nccl-log", "nccl.log", made(seeds.NCCL_LOG), text, lambda path: read_file(path, "all-reduce", 8)),
        ("nccl-csv", "nccl.csv", made(seeds.NCCL_CSV), text, read_file),
        ("measured-csv", "measured.csv", made(seeds.MPT, seeds.VTRAIN, seeds.NCCL_CSV, seeds.GEMMS), text, measured),
        ("measured-md", "measured.md", made(seeds.TORCHTITAN), text, measured),
        ("measured-log", "page.md", made(seeds.MAXTEXT), text, measured),
        ("measured-json", "measured.json", made(seeds.SIMUMAX), mutate.JSON, measured),
        ("steps", "steps.yaml", made(seeds.STEPS), yaml, read_steps),
        ("observed-steps", "steps.csv", made(seeds.STEP_TABLE), text, observed),
        ("observed-profile", "rank0.json", made(seeds.PROFILE), mutate.JSON, read_profile),
        ("observed", "all_reduce_perf.csv", made(seeds.NCCL_LOG, seeds.NCCL_CSV, seeds.GEMMS.replace("us", "time"), seeds.PROFILE), text, observed),
        ("legend", "map.json", made(seeds.LEGEND), mutate.JSON, read_legend),
        ("collected", "collected_0.json", made(seeds.COLLECTED), mutate.JSON, lambda path: read_collected(path.parent)),
        ("configuration", "config.yaml", made(fuzz_named.CONFIGURATION), yaml, fuzz_named.configuration),
        ("plan", "plan.yaml", made(fuzz_named.PLAN), yaml, fuzz_named.plan),
        ("groups", "groups.json", made(fuzz_named.GROUPS), mutate.JSON, fuzz_named.groups),
        ("routed-tokens", "tokens.csv", made(fuzz_named.TOKENS), text, lambda path: read_routing(path, 4, 8)),
        ("expert-counts", "counts.csv", made(fuzz_named.COUNTS), text, lambda path: read_counts(path, 8)),
        ("routing-table", "routes.csv", made(fuzz_named.ROUTES), text, fuzz_named.routes),
        ("loggers", "log.toml", made(fuzz_named.LOGGERS), [*text, mutate.nested], fuzz_named.loggers),
        ("kernels-under-load", "system.json", made(fuzz_named.UNDER_LOAD), mutate.JSON, read_loaded),
        ("corpus", "part.npz", fuzz_named.corpora, mutate.BYTES, fuzz_named.corpus),
        ("corpus-header", "header.json", fuzz_named.corpus_headers, mutate.JSON, fuzz_named.corpus_of_header),
        ("requests", "log.jsonl", made(seeds.REQUESTS, seeds.SESSIONS, seeds.MOONCAKE, seeds.AZURE, seeds.BURSTGPT), text, requests),
        ("requests-json", "log.jsonl", made(seeds.REQUESTS.split("\n")[0], seeds.MOONCAKE.split("\n")[0]), mutate.JSON, requests),
        ("profile", "attention.csv", made(seeds.LAYERS), text, layers),
        ("silicon", "silicon.csv", made(seeds.SILICON), text, read_cases_of_silicon),
        ("sim-to-real", "results.csv", made(seeds.SIM_TO_REAL), text, lambda path: read_points([path])),
        ("captured-run", "capture.json", made(fuzz_runs.CAPTURED_RUN), mutate.JSON, lambda path: fuzz_runs.captured_run(path, gzip.compress(json.dumps(seeds.CAPTURED).encode(), mtime=0))),
        ("vllm-run", "run.json", made(fuzz_runs.VLLM), mutate.JSON, partial(fuzz_runs.vllm_run, profile=seeds.PROFILE_OF)),
        ("captured", "rank_0.json", made(seeds.CAPTURED | {"communications": seeds.CAPTURED["communications"] | {"which": [0, 0]}}, seeds.CAPTURED), mutate.JSON, lambda path: trace_of([read_rank(path)], host_ns=5)),
        ("issue-log", "sim.log", made(seeds.ISSUES), text, issues),
        ("timeline", "run.npz", saved, mutate.BYTES, timeline),
        ("store", "store.db", partial(stored, seeds.SWEEP), mutate.BYTES, store),
        ("trials", "trials.log", trials, [*mutate.JSON, *text], trials_of),
        ("store-rows", "rows.json", made({"vals": {"size": "1 MiB", "bandwidth": 50}, "measures": {"step_time": 0.5, "npus": 4}, "status": "ok",
                              "reason": "no", "seconds": 0.5, "document": {"objectives": ["minimize step_time"]}, "path": "x"}), mutate.JSON, partial(store_of, seeds.SWEEP)),
    ]  # fmt: skip


def messages(path: Path) -> None:
    names, stream = et_def(), open_messages(path)
    if read_message(stream, names["GlobalMetadata"]()):
        while read_message(stream, names["Node"]()):
            pass


def question(path: Path) -> None:
    asked = read_question(read_document(path, "question", "json").data)
    parameters(asked.read_model())
    machine = machine_of(asked.machine)
    if asked.topology:
        picture({"topology": asked.topology}, lambda told: None)
    plan_of({"batch": 1, **asked.plan}, machine)
    command_line(asked, machine.name)
    python(asked, machine.name)


def made(*contents: object) -> Callable[[], Sequence[bytes]]:
    return lambda: [(each if isinstance(each, str) else json.dumps(each)).encode() for each in contents]


def packed(*patterns: str) -> Callable[[], Sequence[bytes]]:
    """Return the three shortest files of the package for each pattern."""

    def read() -> list[bytes]:
        files = (
            sorted(PACKAGE.glob(pattern), key=lambda path: path.stat().st_size)[:3] for pattern in patterns
        )
        return [path.read_bytes() for each in files for path in each]

    return cache(read)


def study(path: Path) -> None:
    with_step(path)
    load_study(path)


SIMULATED_SECONDS = 2.0
"""Of processor time: whole machines are a legitimate study, and take minutes."""


def evaluated(path: Path) -> None:
    with_step(path)
    with patch.object(allowed, "MOST_SECONDS", SIMULATED_SECONDS):
        row = evaluate_study(path)
    # What would be a traceback elsewhere: points are done one by one, and others go on.
    stuck = row.reason.startswith("cannot finish:")
    assert row.status != "failed" or stuck, row.reason


def infragraph(path: Path) -> None:
    read_infragraph(path)
    shown_platform(load_platform(path))


def ns3_config(path: Path) -> None:
    path.with_name("star.txt").write_text(seeds.STAR)
    rings = {key: ["ring"] for key in seeds.SYSTEM if key.endswith("-implementation")}
    read_ns3_machine(seeds.SYSTEM | rings, path, {"logical-dims": ["3"]})


def htsim_options(path: Path) -> None:
    path.with_name("tree.topo").write_text(seeds.TREE)
    network = {"topology": ["Ring"], "npus_count": [8], "bandwidth": [50.0], "latency": [500.0]}
    rings = {key: ["ring"] for key in seeds.SYSTEM if key.endswith("-implementation")}
    tree = str(path.with_name("tree.topo"))
    protocol, *words = path.read_text(errors="replace").replace("tree.topo", tree).split() or [""]
    read_htsim_machine(seeds.SYSTEM | rings, network, words, protocol=protocol)


def side(path: Path) -> None:
    with_step(path)
    with patch.object(allowed, "MOST_SECONDS", SIMULATED_SECONDS):
        read_side(str(path))


def platform(path: Path) -> None:
    shown_platform(load_platform(path))


def edges(path: Path) -> None:
    read_edges(path)


def astra(part: str, path: Path) -> None:
    files: dict[str, Any] = {
        "network": seeds.NETWORK,
        "system": seeds.SYSTEM,
        "memory": seeds.MEMORY,
        part: path,
    }
    shown_platform(read_platform(**files))


def sweep(path: Path) -> None:
    found = load_sweep(path)
    for _ in itertools.islice(found.space.points(), 40):
        pass


def mix(path: Path) -> None:
    found = load_codesign(path)
    for entry in found.entries:
        for machine in itertools.islice(entry.machines(), 4):
            worth(machine.platform, entry.costs)
            for each in found.mix:
                each.least(machine)


def fit(path: Path) -> None:
    found = load_fit(path)
    for operation in ("all-reduce", "all-gather", "send"):
        try:
            found.time(operation, 8, 1, 1 << 20)
        except ArmillaryError:
            continue


def measured(path: Path) -> None:
    headers(path)
    for read in (partial(suite_of, suites=suites()), read_cases):
        try:
            read(path)
        except ArmillaryError:
            continue


def observed(path: Path) -> None:
    found = observe([path])
    found.gemms()
    found.collectives(8)
    assert found.ranks >= 1


def layers(path: Path) -> None:
    """Read a profile of which the attention is broken, and then all of it."""
    for broken in ("attention.csv", "dense.csv", "per_sequence.csv", "moe.csv"):
        with tempfile.TemporaryDirectory() as name:
            for file, text in seeds.PROFILE_OF.items():
                Path(name, file).write_bytes(path.read_bytes() if file == broken else text.encode())
            try:
                profile_table(Path(name), 2, 64, 8, experts=(8, 2))
            except ArmillaryError:
                if broken == "attention.csv":
                    raise


def requests(path: Path) -> None:
    """Read a log of requests, and serve those that a small engine can."""
    found = load_requests(path)
    if int((found.prompt + found.output).sum()) < 5000:
        axes = (np.array([0, 64]), np.array([0, 64]), np.array([0, 16]), np.array([1, 64]))
        table = StepTable(np.full(65, 1000), np.full(17, 10), axes, np.full((2, 2, 2, 2), 5000))
        serve_replica(found, Engine(64, 16, 16, 400), table, "interpreted")


def issues(path: Path) -> None:
    write_issue_log(path, path.with_suffix(".out.json"), 1, Fraction(1000))


@cache
def saved() -> list[bytes]:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "study.yaml")
        path.write_text(seeds.STUDY)
        with_step(path)
        armillary.simulate(load_trace(path.with_name("step")), path).save(path.with_suffix(".npz"))
        return [path.with_suffix(".npz").read_bytes()]


def timeline(path: Path) -> None:
    from armillary import report

    report.to_json(Timeline.load(path))


def with_step(path: Path) -> None:
    """Put a small trace beside a study."""
    if not path.with_name("step.0.et").exists():
        builder = GraphBuilder()
        builder.all_reduce("sum", size="1 MiB", after=[builder.compute("work", flops=1 << 30, bytes=1 << 20)])
        write_trace(path.with_name("step"), Trace.replicate(builder.graph(), ranks=8))
