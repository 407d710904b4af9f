def partition(graphs, ignore):
    import numpy as np

    return np.arange(len(graphs), dtype=np.int32), list(range(len(graphs)))
