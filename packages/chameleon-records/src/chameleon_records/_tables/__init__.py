"""Measurements as tables for other tools: CSV, Parquet, pandas, and Kernel Tuner's formats."""
