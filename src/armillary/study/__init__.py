"""Studies: what is done with traces and machines beyond one simulation."""
