"""Speculative decoding: how many of the tokens that are drafted before a step the step accepts.

A step checks `drafts` tokens behind the last one of a request, and gives one token more than it accepts. With the same
chance a for each draft after accepted ones it gives (1 - a^(k + 1)) / (1 - a) on average, from which a follows.
"""

from __future__ import annotations

from armillary.base.errors import InputError
from armillary.serving.columns import MOST_DRAFTS

MEASURED = {
    "qwen3.5-397b-a17b": (1.93, 2.73, 3.39, 3.97, 4.41, 4.80, 5.04, 5.21),
    "glm-5": (1.84, 2.50, 2.99, 3.33, 3.61, 3.78, 3.91, 4.06),
    "kimi-k2": (1.83, 2.43, 2.88, 3.24, 3.46, 3.62, 3.71, 3.77),
}
"""Model -> tokens of a step with 1, 2 … drafts: MTP of Qwen3.5-397B-A17B and GLM-5.2, EAGLE3 of Kimi-K2.5, on coding of
SPEED-Bench, with thinking (SemiAnalysisAI/InferenceX, golden_al_distribution)."""
UNIT = 2**31 - 1


def gives(model: str, drafts: int, accepted: float | None) -> float:
    """Return how many tokens a step with drafts gives a request on average.

    Args:
        model: Its name.
        drafts: Tokens that are drafted before a step.
        accepted: What the user says; None: what was measured.

    Raises:
        InputError: it is no number that drafts can give, or nothing was measured.
    """
    if not 0 <= drafts <= MOST_DRAFTS:
        raise InputError(f"drafts {drafts}: expected a whole number from 0 to {MOST_DRAFTS}")
    if not drafts:
        if accepted is not None:
            raise InputError(f"accepted {accepted:g}: expected it with drafts from 1 only")
        return 1.0
    if accepted is None:
        known = next((each for name, each in MEASURED.items() if name == model.lower()), None)
        if known is None:
            raise InputError(
                f"drafts {drafts}: how many tokens a step then gives was not measured for {model}, expected accepted, "
                f"from 1 to {drafts + 1}"
            )
        return known[drafts - 1]
    if not 1 <= accepted <= drafts + 1:
        raise InputError(
            f"accepted {accepted:g}: expected tokens of a step from 1 to {drafts + 1}, as it checks {drafts} drafts"
        )
    return accepted


def chances(drafts: int, mean: float) -> tuple[int, ...]:
    """Return of 2**31 - 1 steps how many accept the first draft, the first two, and so on, to give `mean` tokens."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        power = total = 1.0
        for _ in range(drafts):
            power *= middle
            total += power
        low, high = (middle, high) if total < mean else (low, middle)
    found, power = [], 1.0
    for _ in range(drafts):
        power *= high
        found.append(round(power * UNIT))
    return tuple(found)
