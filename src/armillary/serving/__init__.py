"""Serving: requests arrive, a scheduler batches them as an inference engine does, and each step takes its time.

A step is priced from tables: what depends on its tokens alone, what chooses tokens, and attention, which depends on
new tokens of prompts, tokens before them, sequences that decode, and tokens before these. `priced` makes them by
simulating, once, a pass of each size on the exact engine, so networks, collectives and kernels are those of every
other command;
`profile` reads them from measured layers. A run then looks a step up in a microsecond, whatever its model.

The loop (`loop_kernel`) asks the rule of the engine (`vllm_kernel`) to fill a step whenever fewer are in flight than it
allows, and takes the results of the oldest otherwise. All is in whole ns. The time of a request is the sum of five
parts: in the queue until its first step; from there to its first token; and between tokens what a step would take
without prompts, what prompts of others add to it, and what a preemption costs. A plain reference in
`tests/serving/reference.py` does the same with objects and lists, step by step.

Where prompts are computed apart (`pools`), a request is served by two loops, with a transfer over the machine's network
between them (`transfer`). A router that looks at the replicas (`router`) stops their loops at each arrival (`fleet`),
and so do failures of replicas, and replicas that start and stop (`lives`). Requests may come when others are done
(`sessions`, `ahead_kernel`), and blocks that are taken on a device may be kept by its host (`tier_kernel`).
"""
