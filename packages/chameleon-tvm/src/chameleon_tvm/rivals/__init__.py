"""Other tuners for comparison, run in their own processes, with equal threads and one clock."""
