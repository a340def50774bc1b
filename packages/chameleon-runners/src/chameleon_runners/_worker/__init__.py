"""The program of a worker process, started as ``python -m chameleon_runners._worker``.

To start fast, the process first imports little. It imports the modules of a stage, such as TVM for
a builder, when a command names the stage. The process reads commands from one inherited pipe and
writes replies to another. Its standard output and standard error are its log.
"""
