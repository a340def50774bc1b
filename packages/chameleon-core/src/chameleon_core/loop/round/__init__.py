"""One round of a task (figure 3 of the paper).

``tuner`` has the task's ``stages`` explore, sample and synthesize; what comes of it is a ``batch``.
``in_flight`` has batches of several tasks measured by the run's runner. ``task_run``
keeps the records of its task and has the tuner learn.
"""
