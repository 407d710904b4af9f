"""Where claims are from, named the same way everywhere: venue and year, then what of it."""

from __future__ import annotations

TALK = "ISPASS 2023, talk"
PAPER_NOTES = "ISPASS 2023, notes on the paper"
VALIDATION = "ASTRA-sim's documentation, validation"
CASE_2 = "ISPASS 2023, talk, case study 2"
# `HUGE` is a number of ours; the claim says so.
HUGE = 1.2
"""What `CASE_2` calls a huge gain: it gives no number."""
CASE_3 = "ISPASS 2023, case study 3"
THEMIS = "ISCA 2022, Themis"
BUFFERS = "HotI 2020; its numbers are not public"
SCALING = "ASTRA-sim tutorial, HotI: compute scaling"
MOTIVATION = "ASTRA-sim tutorial: motivation"
OUR_BAR = "our bar"
"""No source says it: what we ask of ourselves."""
COMET = "COMET, abstract of arXiv 2211.16648v3"
COMET_RECALLED = "COMET, from memory: unverified"
"""No table, equation or sweep of that paper is public where we can read it."""
