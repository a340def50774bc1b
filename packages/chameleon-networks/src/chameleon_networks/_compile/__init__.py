"""Compiles networks: puts tuned kernels into the graph, and plans the kernel calls."""
