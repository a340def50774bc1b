"""The runner ``local``: candidates are built and timed by turns, in workers of this machine."""
