"""How to start an engine as it was simulated: commands of vLLM, SGLang and TensorRT-LLM.

Only what the simulation was told, or assumed, is in them. MODEL stands for the checkpoint.
"""

from __future__ import annotations

from armillary.serving.service import Service
from armillary.workload.plan.numbers import stores

CACHE = {"vllm": {"fp8": "fp8"}, "sglang": {"fp8": "fp8_e4m3"}, "trtllm": {"fp8": "fp8"}}
"""Engine -> precision of keys and values -> its word for that; others are its default."""


def launch(service: Service) -> list[str]:
    """Return the lines that start a replica of each pool."""
    if (before := service.prefill) is None:
        return [_command(service, "")]
    return [_command(before, "prefill"), _command(service, "decode")]


def _command(of: Service, pool: str) -> str:
    write = {"vllm": _vllm, "sglang": _sglang, "trtllm": _trtllm}[of.engine.rule]
    count = f"{of.replicas} replica{'s' * (of.replicas > 1)}"
    return f"{count}{f' ({pool})' if pool else ''}: {' '.join(write(of, pool))}"


def _cache(of: Service) -> str | None:
    return CACHE[of.engine.rule].get(stores(of.plan).cache)


def _vllm(of: Service, pool: str) -> list[str]:
    engine = of.engine
    found = [
        "vllm serve MODEL", f"--tensor-parallel-size {of.plan.parallel.tp}",
        f"--max-num-batched-tokens {engine.budget}", f"--max-num-seqs {engine.sequences}",
        f"--block-size {engine.block}",
    ]  # fmt: skip
    if engine.ranks > 1:
        found += [f"--data-parallel-size {engine.ranks}"]
    if of.plan.parallel.ep > 1:
        found += ["--enable-expert-parallel"]
    if of.capacity:
        found += [f"--gpu-memory-utilization {of.capacity.share:g}"]
    else:
        found += [f"--num-gpu-blocks-override {engine.blocks}"]
    if kind := _cache(of):
        found += [f"--kv-cache-dtype {kind}"]
    if engine.accepted:
        config = f'{{"method": "mtp", "num_speculative_tokens": {len(engine.accepted)}}}'
        found += [f"--speculative-config '{config}'"]
    found += ["--enable-prefix-caching" if engine.cached else "--no-enable-prefix-caching"]
    if pool:
        found += ["""--kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'"""]
    return found


def _sglang(of: Service, pool: str) -> list[str]:
    engine, ranks = of.engine, of.engine.ranks
    # Its tp counts the devices of all ranks, which divide the chunk.
    found = [
        "python -m sglang.launch_server --model-path MODEL", f"--tp-size {of.plan.parallel.tp * ranks}",
        f"--chunked-prefill-size {engine.budget * ranks}", f"--max-prefill-tokens {engine.budget}",
        f"--max-running-requests {engine.sequences * ranks}", f"--page-size {engine.block}",
    ]  # fmt: skip
    if ranks > 1:
        found += [f"--dp-size {ranks}", "--enable-dp-attention"]
    if of.plan.parallel.ep > 1:
        found += [f"--ep-size {of.plan.parallel.ep}"]
    if own := of.capacity:
        found += [f"--mem-fraction-static {(own.weights + own.cache) / own.device:.3f}"]
    else:
        found += [f"--max-total-tokens {engine.blocks * engine.block}"]
    if kind := _cache(of):
        found += [f"--kv-cache-dtype {kind}"]
    if not engine.cached:
        found += ["--disable-radix-cache"]
    if drafts := len(engine.accepted):
        found += [
            "--speculative-algorithm EAGLE", f"--speculative-num-steps {drafts}", "--speculative-eagle-topk 1",
            f"--speculative-num-draft-tokens {drafts + 1}",
        ]  # fmt: skip
    if engine.poll > 1:
        found += [f"--scheduler-recv-interval {engine.poll}"]
    if pool:
        found += [f"--disaggregation-mode {pool}"]
    return found


def _trtllm(of: Service, pool: str) -> list[str]:
    engine, ranks = of.engine, of.engine.ranks
    found = [
        "trtllm-serve MODEL", f"--tp_size {of.plan.parallel.tp * ranks}", f"--max_num_tokens {engine.budget}",
        f"--max_batch_size {engine.sequences}",
    ]  # fmt: skip
    if of.plan.parallel.ep > 1:
        found += [f"--ep_size {of.plan.parallel.ep}"]
    keys = [f"tokens_per_block: {engine.block}", f"enable_block_reuse: {str(engine.cached).lower()}"]
    if own := of.capacity:
        # Its share is of what weights and a step leave.
        found += [
            f"--kv_cache_free_gpu_memory_fraction {own.cache / (own.device - own.weights - own.working):.3f}"
        ]
    else:
        keys.append(f"max_tokens: {engine.blocks * engine.block}")
    if kind := _cache(of):
        keys.append(f"dtype: {kind}")
    extra = [f"kv_cache_config: {{{', '.join(keys)}}}"]
    if ranks > 1:
        extra.append("enable_attention_dp: true")
        if engine.balance:
            extra.append(f"attention_dp_config: {{enable_balance: true, timeout_iters: {engine.balance}}}")
    if engine.accepted:
        extra.append(
            f"speculative_config: {{decoding_type: MTP, num_nextn_predict_layers: {len(engine.accepted)}}}"
        )
    if pool:
        extra.append("cache_transceiver_config: {backend: DEFAULT}")
    return [*found, "--extra_llm_api_options FILE, with", "; ".join(extra)]
