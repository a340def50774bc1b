"""The steps of a run before its first batch of measurements.

The run checks that the model can be delivered, and lets the frontend choose, for example, a layout.
It then lists the tasks, makes their design spaces, and reads measurements of earlier runs.
"""
