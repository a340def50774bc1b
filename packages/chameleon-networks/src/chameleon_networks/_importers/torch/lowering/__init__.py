"""Converters of torch operators that TVM's importer of torch programs does not support.

Each module imports torch and TVM.
"""
