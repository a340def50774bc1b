"""A pipeline file's JSON Schema, for editors: made of the classes that read the file."""

from chameleon_core.json_schema.document import pipeline_schema

__all__ = ["pipeline_schema"]
