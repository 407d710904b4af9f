"""What the launch scripts of submissions to MLPerf Training 5.1 say that their result logs do not.

Facts from the scripts that submitters publish beside their results (mlcommons/training_results_v5.1, commit 4da2d1cd):
the names of scripts, of the form ``SYSTEM_NODESxGPUSxBATCHxtpXppYcpZ``, and what they switch on. No result was read
there. Systems whose script is not told apart from others beside it are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal


@dataclass(frozen=True)
class Script:
    """What a launch script says.

    Attributes:
        recipe: How operands of GEMMs are scaled: one scale per tensor (current), by the largest values of earlier
            steps (delayed), or nvfp4.
        axes: tp, pp and cp.
        graphs: Whether the CPU launches CUDA graphs.
    """

    recipe: Literal["current", "delayed", "nvfp4"]
    axes: tuple[int, int, int]
    graphs: bool = True


_CURRENT = {cp: Script("current", (1, 1, cp)) for cp in (1, 2)}
_NVFP4 = Script("nvfp4", (1, 1, 1))
_LARGE = Script("nvfp4", (4, 8, 2))
_WIDE = Script("current", (2, 1, 4))
_DELAYED = {cp: Script("delayed", (1, 1, cp)) for cp in (1, 4, 8)}
_ADAPTER = {cp: Script("nvfp4", (1, 1, cp)) for cp in (1, 2, 4)}

SCRIPTS: dict[str, dict[str, Script]] = {
    "llama31_405b": {
        "NVIDIA/hsg_ngpu*": _LARGE,
        "NVIDIA/tyche_ngpu512_*": _LARGE,
        "NVIDIA/theia_ngpu512_*": Script("nvfp4", (2, 8, 2)),
        "University-of-Florida/hpg.dgxb200x8.n*": Script("current", (4, 8, 2)),
    },
    "llama31_8b": {
        "Cisco/hpf_n8": Script("delayed", (1, 1, 1), graphs=False),
        "Cisco/hpf_n16": Script("delayed", (2, 1, 1), graphs=False),
        "Dell/1xXE9680Lx8B200-*": _NVFP4,
        "Dell/1xXE9780x8B300-*": _CURRENT[1],
        "Dell/2xXE9680Lx8B200-*": _CURRENT[1],
        "Dell/2xXE9685Lx8B200-*": _CURRENT[1],
        "HPE/*H200*_n8_*": _CURRENT[2],
        "Lambda/gb300_n18_*": _CURRENT[2],
        "NVIDIA/theia_ngpu8_*": _NVFP4,
        "NVIDIA/theia_ngpu72_*": _CURRENT[2],
        "NVIDIA/theia_ngpu512_*": _WIDE,
        "NVIDIA/tyche_ngpu8_*": _NVFP4,
        "NVIDIA/tyche_ngpu72_*": _CURRENT[2],
        "NVIDIA/tyche_ngpu512_*": _WIDE,
        "Nebius/nebius_b[23]00_n*": _NVFP4,
        "Oracle/1xBM.GPU.B200.8": _NVFP4,
        "Oracle/8xBM.GPU.B200.8": _CURRENT[2],
        "Supermicro/AS-8126GS-NB3RT": Script("current", (1, 1, 1), graphs=False),
        "University-of-Florida/hpg.dgxb200x8.n[12]": _CURRENT[1],
        "University-of-Florida/hpg.dgxb200x8.n*": _CURRENT[2],
        "Verda/b200_8x8_*": _CURRENT[2],
    },
    "llama2_70b_lora": {
        "Dell/1xXE9680Lx8B200-*": _ADAPTER[2],
        "Dell/1xXE9780x8B300-*": _DELAYED[1],
        "NVIDIA/theia_ngpu8_*": _ADAPTER[1],
        "NVIDIA/theia_ngpu*": _DELAYED[8],
        "NVIDIA/tyche_ngpu8_*": _ADAPTER[2],
        "NVIDIA/tyche_ngpu*": _DELAYED[8],
        "Nebius/nebius_b200_n1": Script("nvfp4", (1, 1, 1), graphs=False),
        "Nebius/nebius_b300_n1": _ADAPTER[1],
        "Nebius/nebius_b200_n2": _ADAPTER[2],
        "Nebius/nebius_b200_n4": _ADAPTER[4],
        "Supermicro/SYS-822GS-NB3RT": Script("delayed", (1, 1, 1), graphs=False),
        "University-of-Florida/hpg.dgxb200x8.n[12]": _DELAYED[1],
        "University-of-Florida/hpg.dgxb200x8.n4": _DELAYED[4],
        "University-of-Florida/hpg.dgxb200x8.n*": _DELAYED[8],
    },
}
"""By benchmark, submitter and system; of several patterns that match, the first counts."""


def script_of(release: str, benchmark: str, submitter: str, system: str) -> Script | None:
    """Return what the launch script of a submission says; None where none is known."""
    if release != "v5.1":
        return None
    name = f"{submitter}/{system}"
    return next(
        (each for known, each in SCRIPTS.get(benchmark, {}).items() if fnmatchcase(name, known)), None
    )
