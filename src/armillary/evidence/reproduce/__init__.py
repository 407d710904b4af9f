"""Published studies, made again with our own models; each module says what its source gives and what it assumes.

A reproduction is what it assumes: a dataclass of assumptions and a function from it to an `Outcome`, which
holds tables, a figure, and claims with computed verdicts. Each assumption knows its unit, its reason and what
else it could be. Options, page and sensitivity sweep are made of these, so no study has a command line of its
own. Studies share machines and workloads where their sources do (`case_machines`, `case_workloads`).

A claim is judged by cases: our number beside the range that the claim allows. `judge` is the only definition
of a verdict. No study has thresholds of its own, and a sweep over what we chose is no interval, since a wider
one would agree with more. `summary` runs all studies and keeps what each finds.

COMET reproduces a method, so its workload, its hybrid memory, its clusters and its sweep are steps of their
own. What a node cannot hold becomes, for each plan, the bandwidth of its local memory or loads in the trace,
and never a second model of time.
"""
