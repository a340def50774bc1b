"""Adaptive exploration: an actor-critic learns to walk a design space.

The algorithm is that of Ahn et al. (2020), section 3.2. The module ``explorer`` has it from start
to end. The other modules have its parts:

* ``options``: the explorer's options; imports no numerical library.
* ``states``: arrays that describe configurations to a neural network.
* ``episodes``: all walks (episodes) as one batch, with their moves and rewards; imports no torch.
* ``networks``: the actor-critic networks.
* ``learning``: advantages, the clipped objective, and the agent that learns.
"""
