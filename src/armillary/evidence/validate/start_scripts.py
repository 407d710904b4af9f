"""What InferenceX's start scripts say of the engines of `silicon`'s rows, and what engines do if nothing is said.

Scripts are those of benchmarks/ in SemiAnalysisAI/InferenceX at the day of a measurement, as far as they are known.
"""

from __future__ import annotations

from dataclasses import dataclass

BLACKWELL = ("b200", "b300", "gb200", "gb300")
"""Devices whose start scripts choose as that of B200."""
BLOCKED = ("deepseek-v3", "glm-5", "minimax-m2.5", "qwen3-235b-a22b", "qwen3.5-397b-a17b")
"""Models whose fp8 checkpoints have a scale for each 128 x 128 weights."""
TUNED = ("deepseek-v3", "glm-5")
"""Models for whose experts SGLang has tiles on 8 H200 from 0.5.9 on: 257, with the shared one, of 256 columns
(sgl-project/sglang#17965)."""
LATER = {
    ("minimax-m2.5", "fp8"): "2026-04-03",
    ("minimax-m2.5", "fp4"): "2026-04-08",
    ("kimi-k2", "fp4"): "2026-04-20",
}
"""Model and precision -> day from which on the script for vLLM on B200 says: graphs of up to 2,048 tokens, steps of two
prompts, cache in fp8, 0.9 of the memory, and whole experts only where the row says so."""
RECORDED = "2025-11-14"
"""Day from which on rows say over how many devices experts and requests are divided. Before, scripts for TensorRT-LLM
chose by lengths and clients, and rows say 1 (InferenceMAX of October 2025, e.g. faradawn/InferenceMAX@9596d23d,
jyothisambolu/InferenceMAX@28e5a01e: benchmarks/*_trt_slurm.sh)."""


@dataclass(frozen=True)
class Recipe:
    """What the start script of a row says: InferenceX's, else defaults of the engine.

    Attributes:
        backend: The engine.
        device: Preset.
        model: As we call it.
        precision: Of the row.
        devices: Of the replica.
        day: Of the measurement.
    """

    backend: str
    device: str
    model: str
    precision: str
    devices: int
    day: str

    @property
    def hopper(self) -> bool:
        """Whether its script is one for devices before Blackwell."""
        return self.device not in BLACKWELL

    @property
    def later(self) -> bool:
        """Whether it is a script of vLLM for B200 with large graphs, a cache in fp8, and steps of two prompts."""
        from_day = LATER.get((self.model, self.precision))
        return not self.hopper and self.backend == "vllm" and from_day is not None and self.day >= from_day

    @property
    def silent(self) -> bool:
        """Whether its row does not say how experts and requests are divided, as its script chose that."""
        return self.backend == "trtllm" and self.day < RECORDED

    @property
    def graphs(self) -> int:
        """Tokens of the largest CUDA graph."""
        return 2048 if self.backend == "vllm" and (self.model == "gpt-oss-120b" or self.later) else 512

    def served_as(self, own: bool) -> tuple[tuple[str, str], ...]:
        """Return engine and precisions: what checkpoints quantise, and the start scripts' caches.

        Of MoE models in 4 bits only the experts are; DeepSeek, MiniMax and Qwen3-235B in fp8 have scales of blocks.
        """
        found = {"engine": self.backend, "precision": "bf16"}
        if self.precision in ("fp4", "int4") and self.model != "llama-3.1-70b":
            found["experts"] = "mxfp4" if self.model == "gpt-oss-120b" else self.precision
        elif self.model == "gpt-oss-120b":
            # It exists in MXFP4 only.
            found["experts"] = "mxfp4"
        elif self.precision in ("fp8", "fp4"):
            found["precision"] = self.precision
        if found["precision"] == "fp8" and self.model in BLOCKED:
            found["scales"] = "block"
        hopper = self.hopper
        # MiniMax's script switches FlashInfer's and DeepGEMM's experts off; TensorRT-LLM's were DeepGEMM's until 1.2.
        block = not hopper and found.get("scales") == "block"
        if block and (self.backend, self.model) == ("vllm", "minimax-m2.5"):
            found["expert_kernels"] = "triton"
        elif block and self.backend == "trtllm" and self.day < "2026":
            found["expert_kernels"] = "deepgemm"
        elif self.model in TUNED and (self.backend, self.device, self.devices) == ("sglang", "h200", 8):
            found["expert_kernels"] = "tuned"
        cached = {
            "deepseek-v3": not hopper or self.backend == "trtllm",
            "gpt-oss-120b": not hopper and not self.silent,
            "minimax-m2.5": self.later or (self.precision == "fp4" and not hopper),
            "glm-5": not hopper,
            "qwen3.5-397b-a17b": self.precision in ("fp8", "fp4"),
            # Checkpoints of ModelOpt say so themselves.
            "kimi-k2": self.precision == "fp4",
            "qwen3-32b": own and self.precision == "fp8",
            "llama-3.1-70b": True,
        }
        if cached.get(self.model):
            found["cache_precision"] = "fp8"
        return tuple(sorted(found.items()))

    @property
    def fused(self) -> bool | None:
        """Whether an all-reduce does the norm behind it, too; None: as scripts of the engine say for the device.

        SGLang does so for some architectures, DeepSeek's among them (server_args.py of 0.5.9); of others scripts say
        it: of GLM-5 on B200, of Qwen3.5 in bf16 there and on H200.
        """
        if self.backend != "sglang":
            return None
        if self.model == "qwen3.5-397b-a17b":
            return self.hopper or self.precision in ("", "bf16")
        return not self.hopper or self.model == "deepseek-v3"

    def budget(self, clients: int, isl: int, own: bool) -> int:
        """Return most tokens of a step: of start scripts, their rule for TensorRT-LLM, and defaults of vLLM.

        Args:
            clients: Of the closed loop.
            isl: Most tokens of a prompt.
            own: Whether the run is NVIDIA's, whose limit is not known: by that rule for 1,024 at least, as shorter
                prompts take as long by the token.
        """
        if self.backend == "sglang":
            if self.model == "qwen3.5-397b-a17b":
                return 16384 if self.device == "h200" else 32768
            if self.device == "h200":
                return 8192 if self.model == "glm-5" else 32768
            if self.model == "glm-5":
                return 32768
            return 16384 if self.precision == "fp4" else 32768 if self.devices == 8 else 8192
        if self.backend == "vllm":
            return 2 * isl if self.later else 8192
        if self.model == "gpt-oss-120b":
            return 20_000
        by_rule = -(-(clients + (max(isl, 1024) if own else isl) + 64) // 64) * 64
        return by_rule if own or self.silent else max(8192, by_rule)

    def memory(self, isl: int) -> float | None:
        """Return the share of the memory, as the engine takes it; None: its default."""
        hopper = self.hopper
        if self.backend == "trtllm":
            if self.model == "deepseek-v3":
                return 0.75 if hopper or (self.devices == 4 and isl > 1024) else 0.8
            return 0.85 if self.model == "gpt-oss-120b" else None
        if self.backend == "vllm":
            wide = self.precision == "int4" or (self.model, self.precision) == ("minimax-m2.5", "fp8")
            return 0.95 if wide and not self.later else 0.9
        if self.model == "glm-5":
            return 0.9 if self.precision == "fp4" else 0.85
        if self.model == "qwen3.5-397b-a17b":
            return 0.8 if hopper else 0.85 if self.precision == "fp4" else 0.82
        return 0.85 if self.precision == "fp4" else 0.95 if self.devices == 4 else 0.82

    def sequences(self, clients: int) -> int:
        """Return most sequences that run at a time: as many as clients, but where a script of SGLang says fewer."""
        if self.backend != "sglang" or self.model == "glm-5":
            return clients
        if self.model == "qwen3.5-397b-a17b":
            return min(clients, 128)
        if self.device == "h200":
            return min(clients, 256)
        return min(clients, 256 if self.precision == "fp4" else 128 if self.devices == 8 else 32)

    def poll(self, clients: int) -> int:
        """Return steps between looks for new requests, which scripts of SGLang for B200 say."""
        if self.backend != "sglang" or self.hopper:
            return 1
        if self.model == "glm-5":
            return 10 if self.precision == "fp4" else 1
        if (self.model, self.precision) == ("qwen3.5-397b-a17b", "fp4"):
            return 30
        few = (self.model, self.precision, self.devices) == ("deepseek-v3", "fp8", 4)
        return 10 if clients < 16 or few else 30

    def spread(self, clients: int, isl: int, osl: int, said: tuple[int, int]) -> tuple[int, int]:
        """Return ranks that have requests of their own, and devices over which whole experts are divided.

        Args:
            clients: Of the closed loop.
            isl: Most tokens of a prompt.
            osl: Most tokens of an answer.
            said: What the row says of both. MiniMax's early scripts divided experts always, as did those for
                TensorRT-LLM on Hopper.
        """
        dp, ep = said
        if self.silent:
            own, whole = self._chose(clients, isl > 1024, osl > 1024)
            return self.devices if own else 1, self.devices if whole else 1
        # Scripts for these divide no experts, whatever the row says: kimik2.5_*.sh.
        if (self.model, self.backend) == ("kimi-k2", "vllm"):
            return dp, 1
        always = (self.model, self.precision, self.backend) == ("minimax-m2.5", "fp8", "vllm")
        if always and (self.device == "h200" or not self.later):
            return dp, self.devices
        return dp, self.devices if ep > 1 else 1

    def _chose(self, clients: int, long: bool, wordy: bool) -> tuple[bool, bool]:
        """Return whether an early script for TensorRT-LLM gave ranks requests of their own, and whole experts.

        Args:
            clients: Of the closed loop.
            long: Prompts of more than 1,024 tokens.
            wordy: Answers of more than 1,024 tokens.
        """
        if self.model == "gpt-oss-120b":
            own = not self.hopper and clients >= 256
            return own, self.hopper or own or (self.devices >= 4 and not long and clients >= 16)
        if self.model != "deepseek-v3":
            return False, False
        if self.precision == "fp4":
            own = clients > 32 if long else clients >= 256
            few = 32 if self.devices == 4 or long else 16 if wordy else 8
            return own, clients > few
        if self.hopper:
            return clients > (32 if long else 64), True
        return clients > (64 if long or wordy else 32), True
