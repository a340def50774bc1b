"""Other tuners, run fairly: in processes of their own, with our threads and our timing."""
