"""One round of a task's search (Ahn et al. 2020, figure 3).

``tuner`` calls the task's ``stages``, which explore, sample and synthesize, and returns a
``batch``. ``in_flight`` sends the batches of several tasks to the run's runner. ``task_run`` stores
the measurements of its task and lets the tuner learn from them.
"""
