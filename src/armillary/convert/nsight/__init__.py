"""Nsight Systems: the SQLite files that ``nsys export --type sqlite`` writes."""
