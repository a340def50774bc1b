"""Measurements as tables for other tools: CSV, Parquet, pandas, Kernel Tuner's formats."""
