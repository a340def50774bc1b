"""Child processes: started, isolated, watched, limited in time, and ended with all they started.

* ``child``: one child process; ``conversation``: requests and answers with a deadline.
* ``launcher``: what a child does before its own program; ``death_signal``: how it ends with us.
* ``stamps``: names of processes, and tokens that mark what a child starts.
* ``ending``: how a child and its descendants are ended; ``scratch``: folders that end likewise.

Programs say what they exchange with their parent: nothing here knows a command.
"""
