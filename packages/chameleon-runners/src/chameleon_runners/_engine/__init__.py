"""The engine of all runners: worker processes build candidates, and comparisons time winners.

All runners share the pool of workers, the build phase and the comparison. They differ in three
points (see ``chameleon_runners._local`` and ``chameleon_runners._fleet``):

- A candidate (``CandidateRun``) defines how it is built. ``local`` keeps the kernel in the worker
  that built it; fleets export the kernel to a folder for devices.
- The run of a job defines who times a kernel. With ``local`` it is the worker that holds the
  kernel, while no worker builds. With fleets it is any free device, while builders continue.
- A ``Comparison`` defines where contenders are timed. With ``local`` it is a process for each
  contender on one machine, and with fleets one device for all contenders.
"""
