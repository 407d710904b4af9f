"""What sets runs apart: which parts of the step changed, by how much, and which keys of the studies differ."""
