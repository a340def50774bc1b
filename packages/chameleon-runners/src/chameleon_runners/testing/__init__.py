"""A space of misbehaving kernels, and devices that fail, for tests of runners.

No compiler is needed: the kernels of :class:`~chameleon_runners.testing.faults.FaultSpace` are
Python code. The space's knob ``fault`` chooses what a kernel does wrong.
"""
