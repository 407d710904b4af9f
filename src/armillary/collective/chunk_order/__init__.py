"""In which order the chunks of a collective visit the dimensions of a machine.

Schedulers see dimensions as levels: members, ns per byte, latency. How good a plan can be is a matrix game
between dimension orders and ports. Its value is the lower bound, and its strategy is the start of the search.

`online-greedy` lowers all dimension orders, sorted, and a chunk's position among them is narrowed down level
by level. The first member that is ready triggers the choice. It is made between the two halves of a tick,
chunk by chunk, and holds for all members, so that neither the order of events nor folding matters.
"""
