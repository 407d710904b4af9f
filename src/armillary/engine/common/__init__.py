"""What both engines share: nodes, communicators, collective calls, classes of ranks, folding, timelines."""
