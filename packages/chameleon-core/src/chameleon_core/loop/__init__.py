"""The tuning loop: ``run`` is the sequence of a run, and ``tuning`` gives rounds to tasks."""
