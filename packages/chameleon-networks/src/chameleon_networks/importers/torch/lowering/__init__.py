"""What TVM's importer of PyTorch programs lacks or gets wrong; each module needs torch and TVM."""
