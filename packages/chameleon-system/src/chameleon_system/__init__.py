"""Chameleon's access to the operating system: processes, cores, the processor, whole files.

Nothing here knows of tuning, and nothing else of Chameleon is imported.
"""
