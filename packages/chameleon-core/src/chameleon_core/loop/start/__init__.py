"""The steps before the first batch: check, frontend's choice, tasks, spaces, earlier runs."""
