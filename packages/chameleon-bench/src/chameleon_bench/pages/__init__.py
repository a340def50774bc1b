"""Pages of HTML that need nothing else: of a run, and of a suite."""
