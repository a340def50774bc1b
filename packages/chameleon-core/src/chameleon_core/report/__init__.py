"""The report of a run: one page that needs nothing else."""

from chameleon_core.report.writer import ReportWriter

__all__ = ["ReportWriter"]
