"""The engine that builds candidates in worker processes, has them timed, and compares winners.

Where a kernel is built and timed is what runners differ in: ``local`` builds and times by turns
in the workers of one machine, fleets build in workers here and time on devices elsewhere.
"""
