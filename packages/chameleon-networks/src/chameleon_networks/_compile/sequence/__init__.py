"""Compiles networks of fixed shapes to a sequence of kernel calls, and plans their memory."""
