"""CPUs: what they can do, which of LLVM's names fits them, and how fast their parts are."""
