"""CPUs: the instructions they have, their names in LLVM, and how fast their parts are."""
