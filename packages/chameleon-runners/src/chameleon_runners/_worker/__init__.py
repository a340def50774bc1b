"""The program of a worker process, started as ``python -m chameleon_runners._worker``.

To start fast, the process imports the modules of a stage, such as TVM, only when a command names
it. It reads commands from one pipe and writes replies to another; its standard streams are its log.
"""
