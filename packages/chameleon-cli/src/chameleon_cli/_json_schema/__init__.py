"""The JSON Schema of pipeline files, for editors, made from the classes that read the files."""
