"""The tuning loop: ``run`` has the steps of a run, and ``tuning`` chooses each round's task."""
