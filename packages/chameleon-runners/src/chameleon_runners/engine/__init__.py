"""The engine that builds candidates in worker processes, has them timed, and compares winners.

A pool of workers, a build phase and a comparison are the same for every runner; where kernels are
built and timed is a runner's own (``chameleon_runners.local``, ``chameleon_runners.fleet``):

- A candidate (``CandidateRun``) says how it is built: ``local`` keeps the kernel in the worker that
  built it, fleets export it to a folder for devices.
- A run of a job says who times what is built: ``local`` the worker that holds it, while nobody
  builds; fleets any device that is free, while builders go on.
- A ``Comparison`` says where the times of contenders compare: in a process for each of them on one
  machine, or on one device of a fleet.
"""
