"""The program of a worker process, started as ``python -m chameleon_runners.worker``.

It loads only this package and what a stage imports. A worker reads commands from one inherited pipe
and writes replies to another. Its standard output and error are its log.
"""
