"""The steps before the first batch: tasks, their spaces, and the facts that both depend on."""
