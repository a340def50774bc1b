"""Compares pipelines and tuners, and writes pages about suites and runs.

``suites`` reads suite files, ``cells`` runs their cells, and ``statistics`` computes numbers from
the results. ``pages`` writes pages of suites and single runs. ``commands`` has the commands, such
as ``chameleon bench`` and ``chameleon report``.
"""
