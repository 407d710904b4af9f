"""Many simulations: sweeps, searches, comparisons, costs, whole runs, and what carries them out."""
