"""Additions to TVM's importer of torch programs. Each module imports torch and TVM."""
