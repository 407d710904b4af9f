"""What nobody said of how a model is served, and moves the answer: a sentence each."""

from __future__ import annotations

from armillary.compute.machine import Machine
from armillary.serving.drafts import gives
from armillary.serving.kernels import INGEST_NS, STEP_NS, TOKEN_PS, Kernels
from armillary.serving.requests import Requests
from armillary.serving.spread import Wanted
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.numbers import stores
from armillary.workload.plan.schema import Plan


def of_plan(model: Decoder, requests: Requests, wanted: Wanted, plan: Plan) -> list[str]:
    """Return what is assumed of weights, and of how they are spread."""
    found = []
    if wanted.scales and "fp8" not in (wanted.precision, wanted.experts):
        found.append(f"scales {wanted.scales} has no effect: no operand is in fp8")
    if model.linear and wanted.cached and requests.shared is not None:
        found.append("linear layers keep a state at the end of each block that requests share")
    kept = stores(plan)
    if kept.weights != plan.numbers.compute and not wanted.experts:
        found.append(
            f"GEMMs read weights as if they were stored in {plan.numbers.compute}, not in {kept.weights}: only memory "
            "counts the difference"
        )
    if wanted.pp > 1:
        found += [
            f"pp {wanted.pp}: a replica has as many batches as stages, each of requests of its own, and requests come "
            "to them in turn; batches do not wait for each other, so long prompts of others delay none",
            "no run with pipeline stages was measured, so means have no interval",
        ]
    if wanted.tp is None and plan.parallel.tp > 1:
        found.append(f"tp {plan.parallel.tp}: one replica on all devices of the machine")
    return found


def of_engine(model: Decoder, wanted: Wanted, *, measured: bool) -> list[str]:
    """Return what is assumed of drafts, blocks and the front end; `measured`: blocks follow from the memory."""
    found = []
    if wanted.drafts:
        mean = gives(model.name, wanted.drafts, wanted.accepted)
        found += [
            f"a step with {wanted.drafts} draft{'s' * (wanted.drafts > 1)} gives {mean:.3g} tokens on average, each "
            "draft is accepted with the same chance, and takes one layer like those of the model and the choice of a "
            "token",
            "no run with drafts was measured, so means have no interval",
        ]
    if measured:
        found.append(
            "blocks of keys and values follow from weights and the working memory of a step; engines measure it, and "
            "find up to 10 % fewer"
        )
    if wanted.ingest_ns is None:
        found.append(
            f"a request is in the queue {INGEST_NS[wanted.engine] / 1e6:.3g} ms after it came, and its prompt takes "
            f"the front end {TOKEN_PS / 1e6:g} us a token, one request after another"
        )
    return found


def of_steps(
    model: Decoder, machine: Machine, requests: Requests, wanted: Wanted, kernels: Kernels | None
) -> list[str]:
    """Return what is assumed of the times of steps."""
    found = []
    if kernels and wanted.overhead_ns is None:
        found.append(
            f"a step takes {STEP_NS[0] / 1e3:g} us besides its kernels, and {STEP_NS[1] / 1e3:g} us more for each "
            "sequence that gets a token, as vLLM does on H100"
        )
    elif not wanted.overhead_ns:
        found.append("what the engine does on the CPU hides behind the device, and takes no time of its own")
    if kernels is None:
        found.append("kernels are those of training: of an inference engine none was measured on this device")
    elif not kernels.measured:
        found.append(
            f"kernels of the engine were not measured: they follow {kernels.like} and the data sheet"
        )
    measured = kernels is not None and kernels.measured
    found += machine.kernels_not_measured(
        "kernels that no table of the engine has" if measured else "kernels"
    )
    if (longest := int((requests.prompt + requests.output).max())) > model.context:
        found.append(
            f"requests have up to {longest:,} tokens, and {model.name} is made for {model.context:,}: engines refuse "
            "longer ones unless they are told otherwise"
        )
    if model.experts is not None:
        often = (
            f"as often as {wanted.counts} says"
            if wanted.counts
            else "some more often, as in tables of kernels"
        )
        found.append(f"tokens choose experts by chance, {often}")
        if (wanted.counts or wanted.redundant) and (kernels is None or "experts" not in kernels.parts):
            name = "expert-counts" if wanted.counts else "redundant"
            found.append(
                f"{name} has no effect on times: experts were not measured on this device, nor on one like it"
            )
    if wanted.redundant:
        found.append(
            f"{wanted.redundant} copies of experts stand where they balance devices best, and never move"
        )
    if model.attention.sparse is not None and kernels is not None and wanted.engine != "sglang":
        found.append("attention over chosen keys (DSA) takes what kernels of SGLang take")
    if wanted.dp > 1 and kernels is not None and kernels.link:
        found.append(
            f"ranks of dp {wanted.dp} gather tokens for experts, and divide sums of what these make, in half the time "
            "of a two-shot all-reduce each"
        )
    return found
