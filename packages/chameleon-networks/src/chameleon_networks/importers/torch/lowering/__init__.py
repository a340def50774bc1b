"""Additions to TVM's importer of PyTorch programs; each module needs torch and TVM."""
