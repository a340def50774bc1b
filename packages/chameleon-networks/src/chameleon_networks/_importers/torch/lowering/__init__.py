"""Converters and decompositions of torch operators that TVM's importer lacks."""
