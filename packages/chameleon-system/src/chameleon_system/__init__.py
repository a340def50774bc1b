"""Chameleon's access to the operating system: processes, cores, the processor, and files.

The package knows nothing of tuning, and imports no other package of Chameleon.
"""
