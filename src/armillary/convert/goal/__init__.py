"""GOAL schedules, the text of LogGOPSim and ATLAHS: reading them, and what that simulator's model makes of them."""
