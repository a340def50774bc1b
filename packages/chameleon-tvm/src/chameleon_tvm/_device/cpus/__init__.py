"""CPUs: the instructions that they have, their names in LLVM, and the speed of their parts."""
