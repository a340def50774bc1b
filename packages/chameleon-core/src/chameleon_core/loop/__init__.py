"""The tuning loop: ``run`` is its sequence, in which ``tuning`` gives rounds to tasks."""
