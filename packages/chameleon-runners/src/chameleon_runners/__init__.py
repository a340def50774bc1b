"""Chameleon's runners, which build, check and time candidates in worker processes."""
