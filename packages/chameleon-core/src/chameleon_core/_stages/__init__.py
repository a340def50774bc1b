"""The contracts of all stages: abstract classes that plugins implement.

Each method names the exceptions that it may raise. A ``ChameleonError`` ends the run with its own
message and hint. Any other exception ends the run with a ``PluginError`` that names the stage. If
the build or run of one candidate raises an exception, this is a failed measurement instead.
"""
