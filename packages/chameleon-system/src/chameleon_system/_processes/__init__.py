"""Child processes: their start, isolation, time limits, and the end of all that they started.

* ``child``: one child process; ``conversation``: requests and answers with a deadline.
* ``launcher``: the start of a child's program; ``death_signal``: its end with the parent.
* ``stamps``: unique names of processes, and tokens that mark what a child starts.
* ``ending``: ends a child and its descendants; ``scratch``: temporary folders.

This package does not define the content of messages between a child and its parent; the programs
that use it do.
"""
