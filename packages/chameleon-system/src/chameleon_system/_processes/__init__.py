"""Child processes: their start, isolation, time limits, and the end of all that they started."""
