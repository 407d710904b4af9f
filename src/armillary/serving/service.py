"""A model that is served on a machine: how it is spread, how its engine schedules, and how long its steps take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from armillary.base.errors import InputError, nearest, one_of
from armillary.base.units import parse_time
from armillary.compute.gpu.device import load_gpu
from armillary.compute.machine import Machine
from armillary.serving import assumed
from armillary.serving.adapters import adapters_of
from armillary.serving.capacity import Capacity, capacity_of, usual_share
from armillary.serving.changes import Changes
from armillary.serving.drafts import chances, gives
from armillary.serving.fleet import routed
from armillary.serving.kernels import ENGINES, EXPERTS, INGEST_NS, TOKEN_PS, Kernels, kernels_of
from armillary.serving.lives import Fleet
from armillary.serving.outcome import Outcome, joined
from armillary.serving.priced import priced
from armillary.serving.replica import Engine, Served, check_fits, serve_replica
from armillary.serving.requests import Ints, Requests
from armillary.serving.routed import Routed, read_counts
from armillary.serving.router import router_notes, shares
from armillary.serving.spread import Wanted, as_published, plan_of
from armillary.serving.stages import check_stages, of_stages, with_stages
from armillary.serving.step_table import StepTable
from armillary.workload.layers.layer import Precision
from armillary.workload.models import Model
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan

LARGE_DEVICE = 70 * 2**30
"""Bytes from which on vLLM's server takes steps of 8,192 tokens and 1,024 sequences, else 2,048 and 256
(vllm/engine/arg_utils.py)."""
CAPTURED = 512
"""Tokens of the largest CUDA graph if nothing is said (vLLM 0.19, SGLang)."""
MOST_BUDGET, MOST_SEQUENCES, MOST_BLOCK, MOST_BLOCKS = 2**17, 2**14, 2**12, 2**27
PRECISIONS: tuple[Precision, ...] = ("bf16", "fp8", "fp4")
"""Of GEMMs of which engines' kernels were measured."""
MOST_INGEST, MOST_POLL, MOST_COPIES = 10**12, 10**6, 10**5


@dataclass(frozen=True)
class Service:
    """A model that is served.

    Attributes:
        model: The model.
        machine: All devices.
        plan: Of all replicas.
        engine: Of each replica.
        capacity: Memory of a device; None: the number of blocks was given.
        table: Times of its steps.
        replicas: Replicas of the model, or, of two pools, those that decode; with stages the lanes of all of them.
        router: One of `armillary.serving.router.ROUTERS`.
        measured: Whether kernels of the engine were measured on this device.
        changes: How replicas fail, start and stop; None: all of them serve.
        stages: Of a replica, see `armillary.serving.stages`.
        assumptions: Sentences: what nobody said and moves the answer.
    """

    model: Model
    machine: Machine
    plan: Plan
    engine: Engine
    capacity: Capacity | None
    table: StepTable
    assumptions: tuple[str, ...]
    replicas: int = 1
    router: str = "round-robin"
    measured: bool = False
    changes: Changes | None = None
    stages: int = 1

    @property
    def prefill(self) -> Service | None:
        """What computes prompts, if that is another pool (`armillary.serving.pools`)."""
        return None

    @property
    def replica_devices(self) -> int:
        """Devices of a replica, or of a lane of one with stages."""
        return self.plan.parallel.tp * self.engine.ranks

    @property
    def devices(self) -> int:
        """Devices of all replicas."""
        return self.replicas * self.replica_devices

    def run(self, requests: Requests) -> Outcome:
        """Return what becomes of a load: its requests go to replicas as the router says, and clients stay with one.

        Raises:
            InputError: a request can never be served.
        """
        if self.changes:
            return Fleet(requests, self.replicas, self.fitted(), self.table, self.router, self.changes).run()
        parts = shares(requests, self.replicas, self.router)
        if parts is not None:
            return self.served(requests, parts)
        return joined(requests, *routed(requests, self.replicas, self.fitted(), self.table, self.router))

    def served(self, requests: Requests, shares: Sequence[Ints]) -> Outcome:
        """Return what becomes of a load of which each replica has a share: the numbers of its requests, ascending."""
        check_fits(requests, self.engine)
        engine = self.fitted()
        parts = [share_of(requests, mine, len(shares), at) for at, mine in enumerate(shares)]
        return joined(requests, serve_all(parts, engine, self.table), shares)

    def fitted(self) -> Engine:
        """Return the engine with no more sequences than the table has times for: a load has no more requests."""
        most = (len(self.table.head) - 1) // (1 + len(self.engine.accepted))
        return replace(self.engine, sequences=min(self.engine.sequences, most))


def serve_all(parts: Sequence[Requests], engine: Engine, table: StepTable) -> list[Served]:
    """Return what becomes of the load of each replica: those whose loads differ in their begin only are one class."""
    known: dict[tuple[bytes, ...], Served] = {}
    found = []
    for part in parts:
        begin = max(0, int(part.arrival[0]))
        alike = replace(part, arrival=np.where(part.arrival < 0, -1, part.arrival - begin))
        lengths = (alike.arrival, alike.prompt, alike.output)
        links = part.follows.arrays if part.follows else ()
        key = (*(each.tobytes() for each in (*lengths, *links)), repr((part.clients, part.shared)).encode())
        if key not in known:
            known[key] = serve_replica(alike, engine, table)
        found.append(known[key].later(begin))
    return found


def share_of(requests: Requests, mine: Ints, replicas: int, at: int) -> Requests:
    """Return the load of one of `replicas`: these requests, of its share of the clients."""
    clients = (requests.clients + replicas - 1 - at) // replicas
    own = replace(requests.part(mine), clients=clients)
    return replace(own, arrival=np.where(np.arange(len(mine)) < clients, 0, -1)) if clients else own


def service(model: Model, machine: Machine, requests: Requests, wanted: Wanted) -> Service:
    """Return a model as it is served, for loads like this one: with no longer sequences and no more of them.

    Raises:
        InputError: it is no decoder, does not fit, or cannot be spread or served so.
    """
    if not isinstance(model, Decoder):
        raise InputError(f"serving '{model.name}': expected a model of kind 'decoder', got '{model.kind}'")
    able = load_gpu(machine.device).peaks if machine.device else ()
    wanted, published = as_published(model, wanted, able)
    whole = max(1, machine.npus // max(1, wanted.pp)) if wanted.dp == 1 else 1
    tp = whole if wanted.tp is None else wanted.tp
    plan = plan_of(model, machine.name, machine.npus, tp, wanted)
    check_stages(model, machine, wanted, tp)
    engine, capacity = _engine(model, machine, requests, wanted, plan)
    each = machine.npus // (tp * wanted.dp * wanted.pp)
    replicas = within("replicas", wanted.replicas, each, MOST_COPIES * each)
    if replicas % each:
        raise InputError(
            f"replicas {replicas}: expected a multiple of {each}, those of a machine {machine.name}"
        )
    notes = router_notes(wanted.router, requests, replicas * wanted.pp, wanted.cached)
    # Refused before steps are timed.
    check_fits(requests, engine)
    kernels = _kernels(model, machine, wanted, tp)
    adapters = adapters_of(wanted.lora, wanted.lora_rank)
    assumptions = [
        *requests.notes, *machine.assumptions, *machine.collectives_not_measured(), *published,
        *assumed.of_plan(model, requests, wanted, plan),
        *assumed.of_engine(model, wanted, measured=capacity is not None), *notes,
        *assumed.of_steps(model, machine, requests, wanted, kernels), *([adapters.note()] if adapters else ()),
    ]  # fmt: skip
    most = min(engine.sequences, engine.budget, requests.clients or len(requests))
    # SGLang has no limit of tokens where it decodes.
    table = priced(
        model, plan, machine.platform, budget=max(engine.budget, most * (1 + wanted.drafts)), sequences=most,
        longest=int((requests.prompt + requests.output).max()) + wanted.drafts, captured=captured(wanted.graphs),
        overhead_ns=wanted.overhead_ns, kernels=kernels, ranks=wanted.dp, drafts=wanted.drafts,
        adapters=adapters, attention=projections_of(wanted),
    )  # fmt: skip
    if wanted.pp > 1:
        table = with_stages(table, model, machine, tp, wanted.pp)
    plain = not wanted.drafts and wanted.pp == 1 and adapters is None
    measured = kernels is not None and kernels.measured and plain
    return Service(
        model, machine, plan, engine, capacity, table, tuple(assumptions), replicas * wanted.pp, wanted.router,
        measured, stages=wanted.pp,
    )  # fmt: skip


def _engine(
    model: Decoder, machine: Machine, requests: Requests, wanted: Wanted, plan: Plan
) -> tuple[Engine, Capacity | None]:
    """Return the engine of a replica, and the memory of its devices; None: the number of blocks was given.

    Raises:
        InputError: a number is wrong, or there is no room for a block.
    """
    device = machine.platform.npu.memory.capacity
    small = 0 < device < LARGE_DEVICE
    budget = within("budget", wanted.budget, 2048 if small else 8192, MOST_BUDGET)
    sequences = within("sequences", wanted.sequences, 256 if small else 1024, MOST_SEQUENCES)
    block = within("block", wanted.block, 16, MOST_BLOCK)
    if wanted.memory is not None and not 0 < wanted.memory <= 1:
        raise InputError(
            f"memory {wanted.memory:g}: expected a share of the memory of a device, above 0, up to 1"
        )
    mean = gives(model.name, wanted.drafts, wanted.accepted)
    if wanted.drafts and model.layout is not None:
        raise InputError(f"drafts {wanted.drafts}: layers of {model.name} have one block each, expected 0")
    if wanted.drafts and budget < 1 + wanted.drafts:
        raise InputError(f"budget {budget}: expected at least {1 + wanted.drafts}, a token and its drafts")
    capacity = None
    if wanted.blocks is None:
        if not device:
            raise InputError(
                f"machine {machine.name}: npu.memory.capacity is not given, expected it, or a number of blocks"
            )
        # What drafts has weights and a cache, too.
        whole = model.model_copy(update={"layers": model.layers + 1}) if wanted.drafts else model
        usual = max(1, int((requests.prompt + requests.output).mean()))
        share = wanted.memory or usual_share(
            wanted.engine, device, budget, sequences, plan.parallel.tp * wanted.dp
        )
        capacity = capacity_of(
            whole, plan, device, share, budget=budget, block=block, tokens=usual, engine=wanted.engine,
            experts=EXPERTS.get(wanted.experts or ""),
            copies=1 + wanted.redundant / model.experts.count if model.experts else 1.0,
            attention=projections_of(wanted), least=wanted.pp == 1,
        )  # fmt: skip
        if wanted.pp > 1:
            capacity = of_stages(capacity, model, plan, wanted.pp, usual, EXPERTS.get(wanted.experts or ""))
        if adapters := adapters_of(wanted.lora, wanted.lora_rank):
            capacity = adapters.held(capacity, model, plan, wanted.pp)
    if wanted.overhead_ns is not None and not 0 <= wanted.overhead_ns <= MOST_INGEST:
        raise InputError(f"overhead {wanted.overhead_ns:,} ns: expected 0 to {MOST_INGEST:,} ns")
    ingest = INGEST_NS.get(wanted.engine, 0) if wanted.ingest_ns is None else wanted.ingest_ns
    if not 0 <= ingest <= MOST_INGEST:
        raise InputError(f"ingest {ingest:,} ns: expected 0 to {MOST_INGEST:,} ns")
    if within("poll", wanted.poll, 1, MOST_POLL) > 1 and wanted.engine != "sglang":
        raise InputError(
            f"poll {wanted.poll}: expected 1 with engine {wanted.engine}, only sglang has such a key"
        )
    within("balance", wanted.balance, 0, MOST_POLL, least=0)
    if wanted.balance and (wanted.engine != "trtllm" or wanted.dp == 1):
        raise InputError(f"balance {wanted.balance}: expected it with engine trtllm and dp above 1 only")
    blocks = capacity.blocks if capacity else within("blocks", wanted.blocks, 1, MOST_BLOCKS)
    engine = Engine(
        budget, -(-sequences // wanted.pp), block, min(blocks, MOST_BLOCKS), ahead=wanted.ahead, cached=wanted.cached,
        rule=wanted.engine, poll=wanted.poll, ingest_ns=ingest, token_ps=TOKEN_PS if wanted.ingest_ns is None else 0,
        ranks=wanted.dp, balance=wanted.balance, accepted=chances(wanted.drafts, mean) if wanted.drafts else (),
    )  # fmt: skip
    return engine, capacity


def _kernels(model: Decoder, machine: Machine, wanted: Wanted, tp: int) -> Kernels | None:
    """Return the kernels of the engine, None: none was measured on this device or one like it.

    Raises:
        InputError: an engine, a kind of scales or of experts is unknown, or the model has none.
    """
    stored = wanted.experts or wanted.precision or "bf16"
    for name, value, known in (
        ("engine", wanted.engine, ENGINES),
        ("scales", wanted.scales or "tensor", ("tensor", "block")),
        ("experts", wanted.experts or "bf16", tuple(each for each in EXPERTS if " " not in each)),
    ):
        if value not in known:
            raise InputError(f"{name} {value}: expected {one_of(known)}{nearest(value, known)}")
    own, routed, all_of = model.experts, None, tp * wanted.dp
    of_experts = {
        "experts": wanted.experts, "ep": wanted.ep > 1, "expert-counts": wanted.counts,
        "expert-kernels": wanted.expert_kernels,
    }  # fmt: skip
    if own is None and any(of_experts.values()):
        name = next(name for name, value in of_experts.items() if value)
        raise InputError(f"{name}: {model.name} has no experts, expected none")
    if own is not None:
        stored += " block" if stored == "fp8" and wanted.scales == "block" else ""
        counts = read_counts(wanted.counts, own.count) if wanted.counts else ()
        routed = Routed(
            own.count, own.top_k, model.expert_width, own.size, wanted.ep, all_of, stored, wanted.dp, counts,
            wanted.redundant,
        )  # fmt: skip
    if not machine.device:
        return None
    inner = machine.platform.dimensions[0]
    link = inner.bandwidth * 1e9 if 1 < all_of <= inner.size else 0.0
    cache = wanted.cache_precision or "bf16"
    found = kernels_of(
        machine.device, wanted.engine, link, wanted.scales == "block", routed, cache, wanted.expert_kernels
    )
    if found and wanted.fused is not None:
        found = replace(found, parts={**found.parts, "fuses": {"all": {"norm": float(wanted.fused)}}})
    return found and replace(found, drafts=wanted.drafts)


def projections_of(wanted: Wanted) -> Precision | None:
    """Return the precision of projections of attention, None: that of all GEMMs.

    Raises:
        InputError: it is none of GEMMs.
    """
    for known in PRECISIONS:
        if known == wanted.attention_precision:
            return known
    if wanted.attention_precision is not None:
        raise InputError(
            f"attention-precision {wanted.attention_precision}: expected {one_of(PRECISIONS)}"
            f"{nearest(wanted.attention_precision, PRECISIONS)}"
        )
    return None


def captured(most: int | None) -> tuple[int, ...]:
    """Return the tokens of the steps of which vLLM has CUDA graphs; others up to the last are filled up to the next."""
    last = within("graphs", most, CAPTURED, MOST_BUDGET)
    found = [1, 2, 4, *range(8, 257, 8), *range(272, last + 1, 16)]
    return (*(each for each in found if each < last), last)


def within(name: str, value: int | None, usual: int, most: int, least: int = 1) -> int:
    """Return a whole number, or the usual one if it is None.

    Raises:
        InputError: it is below `least` or above `most`.
    """
    found = usual if value is None else value
    if not least <= found <= most:
        raise InputError(f"{name} {found}: expected a whole number from {least} to {most:,}")
    return found


def limits_of(text: str) -> Mapping[str, float]:
    """Return the limits of a service-level objective, name -> s, of a text like ``ttft=500ms,tpot=50ms``.

    Raises:
        InputError: a name or a time is wrong.
    """
    found: dict[str, float] = {}
    names = ("ttft", "tpot", "e2e")
    for part in text.split(","):
        name, _, value = (each.strip() for each in part.partition("="))
        if name not in names:
            raise InputError(
                f"slo {text}: no limit '{name}'{nearest(name, names)}, expected {one_of(names)}, "
                "e.g. ttft=500ms,tpot=50ms"
            )
        if name in found:
            raise InputError(f"slo {text}: {name} is given twice, expected once")
        try:
            found[name] = parse_time(value) / 1e9
        except ValueError as error:
            raise InputError(f"slo {text}: {name}: {error}") from None
    return found
