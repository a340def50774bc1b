"""A pipeline file's JSON Schema, for editors: made of the classes that read the file."""
