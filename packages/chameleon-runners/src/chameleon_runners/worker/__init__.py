"""The program of a worker process, started as ``python -m chameleon_runners.worker``.

Only this package and what a stage itself imports is loaded there. A worker reads commands from
one inherited pipe and writes replies to another; its standard output and error are the log.
"""
