"""Adaptive exploration: an actor-critic that learns to walk a design space (CHAMELEON, 3.2).

``explorer`` is the algorithm in the order in which it runs; the other modules are its pieces:

* ``options``: what a pipeline file may say; imports no numerical library.
* ``states``: configurations as what a network sees.
* ``episodes``: all episodes as one batch: moves, legality, rewards. No torch.
* ``networks``: the actor-critics.
* ``learning``: advantages, the clipped objective, and the agent that descends it.
"""
