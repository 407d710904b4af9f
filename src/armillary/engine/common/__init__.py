"""What both engines share: nodes, communicators, collective calls, classes of ranks, folding, timelines.

An engine is a compiler. A simulator of this kind is usually written as a crowd of objects: one per rank, one
per message in flight, one callback per event. That is easy to start with and slow for ever after, and nothing
in it can be printed, compared or saved half-way. Here each stage turns one plain value into the next, and
only the last stage, the kernel, is hot. Lowering is where the last Python object ends.
"""
