"""Compares tuners and writes pages: suites, their cells, statistics, and the report of a run.

``suites`` reads a suite file, ``cells`` runs what it describes, and ``statistics`` turns
trajectories into numbers. ``pages`` writes them down, those of a single run as well. ``commands``
are ``chameleon bench`` and ``chameleon report``.
"""
