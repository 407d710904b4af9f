"""DeepSeek and what has its latent attention."""

from __future__ import annotations

from armillary.workload.models.hugging_face.configuration import Built, Configuration
from armillary.workload.models.hugging_face.llama import llama

SPARSE = ("deepseek_v32", "glm_moe_dsa")
"""Architectures of DeepSeek-V3.2 and GLM-5: latent attention over keys that a small attention chooses."""


def deepseek(config: Configuration) -> Built:
    """Build DeepSeek-V2 or V3 without the layers that predict further tokens, which serving leaves out."""
    config.only("moe_layer_freq", 1, "every layer after the first dense ones has experts")
    config.only("attention_bias", False, "latent attention without biases")
    model, data = llama(config)
    data["attention"] = {
        "heads": config.whole("num_attention_heads"),
        "latent": {
            "query_rank": config.optional("q_lora_rank"),
            "kv_rank": config.whole("kv_lora_rank"),
            "plain_size": config.whole("qk_nope_head_dim"),
            "rotary_size": config.whole("qk_rope_head_dim"),
            "value_size": config.whole("v_head_dim"),
        },
    }
    kind = config.value("model_type")
    if kind in SPARSE:
        data["attention"]["sparse"] = {
            "heads": config.whole("index_n_heads"),
            "size": config.whole("index_head_dim"),
            "top": config.whole("index_topk"),
        }
    data["experts"] = {
        "count": config.whole("n_routed_experts"),
        "top_k": config.whole("num_experts_per_tok"),
        "size": config.whole("moe_intermediate_size"),
        "shared": config.whole("n_shared_experts", 0, low=0),
        "dense_first": config.whole("first_k_dense_replace", low=0),
        # V3's ``e_score_correction_bias`` balances the load without a loss.
        "router_bias": kind != "deepseek_v2",
    }
    # V2 restricts groups only with this method (V2-Lite is greedy), V3 always.
    third = data["experts"]["router_bias"]
    if third or config.value("topk_method") == "group_limited_greedy":
        # Absent keys: as `transformers` has them.
        data["experts"] |= {
            "groups": config.whole("n_group", 8 if third else 1),
            "top_groups": config.whole("topk_group", 4 if third else 1),
        }
    return model, data
