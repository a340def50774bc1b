"""Learns from measurements of many tasks what is fast, before a new task is tuned.

``dataset`` holds data sets of measured candidates: their format on disk, their collection, and what
is imported into them. ``commands`` are those of the command line.
"""
