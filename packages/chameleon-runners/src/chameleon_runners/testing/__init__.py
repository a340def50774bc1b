"""A space of kernels that misbehave, to test runners with.

Needs no compiler: :class:`~chameleon_runners.testing.faults.FaultSpace` is a space provider like
any other, whose kernels are Python, and whose knob says what each of them does wrong.
"""
