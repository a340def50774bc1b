"""The engine of all runners: worker processes build candidates, and comparisons time winners.

Runners share the pool of workers, the build phase and the comparison. ``local`` times a kernel in
the worker that built it, while no worker builds. Fleets export kernels to folders, and time them on
any free device, while builders continue.
"""
