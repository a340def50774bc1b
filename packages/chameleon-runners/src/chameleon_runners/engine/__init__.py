"""The engine that builds candidates in worker processes, has them timed, and compares winners.

A pool of workers, a build phase and a comparison are the same for every runner. A runner
builds and times kernels in its own way (``chameleon_runners.local``, ``chameleon_runners.fleet``):

- A candidate (``CandidateRun``) says how it is built. ``local`` keeps the kernel in the worker that
  built it; fleets export it to a folder for devices.
- A run of a job says who times a kernel. ``local`` has the worker that holds it do so, while
  nobody builds; fleets take any free device, while builders go on.
- A ``Comparison`` says where the times of contenders compare. That is a process for each of them
  on one machine, or one device of a fleet.
"""
