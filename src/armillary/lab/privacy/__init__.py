"""Obfuscation that keeps simulated times, and attacks that measure what a trace still reveals about its workload.

`balance` scales each kind of work by a random factor and then moves the factors by the smallest steps that bring
the time back on every machine; there are more kinds than machines, so most of the randomness stays. That cannot
change who communicates with whom. `surrogate` therefore draws another workload and solves for the same times with
the same method. Its only inputs are the number of ranks, the times and the key, so its signature bounds what it can
reveal.
"""
