"""Terms of interference and overhead in a step (`armillary.platform.kernels`), each for itself.

`launch` and `straggler` change durations before a run, `communication` changes phases and messages, and
`step` changes the finish. `overlap` runs the program, measures what overlaps, copies tables with longer times
and runs again, three times at most. Classes of ranks remain classes, because the same happens to all ranks of
one. The kernels of the engine know nothing of terms.
"""
