"""How little a trace can say about what it was made of, and how well it still stands for it.

`balance` scales each kind of work by a random factor and moves the factors by the least that brings the time
back on every machine; there are more kinds than machines, so most of the randomness stays. Who communicates
with whom cannot be rewritten that way. `surrogate` therefore makes a surrogate trace: it draws another
workload and solves for the same times with the same method. Its only inputs are the number of ranks, the
times and the key, so what it can tell is bounded by its signature.
"""
