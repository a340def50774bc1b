"""The store of a run: all tasks, measurements and comparisons in one SQLite file."""
