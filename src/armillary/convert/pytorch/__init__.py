"""PyTorch: host and device traces, joined and turned into Chakra.

A PyTorch run leaves intervals: operators inside operators on threads, kernels on streams, calls that block. A
Chakra node contains nothing and starts when its dependencies have ended. The conversion takes four steps:

- Each thread is cut into segments. At every moment the innermost operator is the one that works (`segments`).
- Segments become steps. A step depends on everything it waited for: the step before it, work of another
  thread, stream or collective, and the writers of its data (`steps`, `streams`, `workers`, `data_waits`). Its
  duration is what is left after the last of these has ended. By induction, every CPU step ends in a replay at
  the very nanosecond at which it was measured to end.
- Time between the end of everything that a kernel can have waited for and its start becomes a step of its
  own, a latency or a gap (`tracks`, `launches`, `late_kernels`, `delays`),
  so that kernels start at most 5 µs early. Unrecorded time of a thread is a gap only up to the last end of
  anything the thread can have waited for (`host_time`).
- `closing` replays each rank, with and without such steps, and compares.

Waiting is never a duration. It shrinks when what it waited for gets faster, and this is what makes the trace
valid for other machines.

The work of an operator, the shapes of its tensors and its GEMM stand on its kernels or, if it ran none, on the
longest of its nodes. An operator on distributed tensors counts as no work; the call of the same name inside it,
which works on this rank's shard, counts instead.
"""
