"""The steps before the first batch: check, the frontend's choice, tasks, spaces, earlier runs."""
