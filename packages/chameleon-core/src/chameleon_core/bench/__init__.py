"""``chameleon bench``: pipelines x tasks x seeds, run resumably and compared with statistics.

``load`` reads a suite, ``execute`` runs its cells, ``summary`` turns their trajectories into
numbers, ``page`` and ``sheets`` write them down.
"""
