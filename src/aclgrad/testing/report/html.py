"""The report as a page."""

from __future__ import annotations

from .model import Report


def page(report: Report) -> str:
    """One file."""
    return f"<title>{report.verdict}</title>"


def embedded(report: Report) -> str:
    """In a notebook."""
    return page(report)
