"""The page that `transit compile --report` writes."""

from __future__ import annotations

from typing import Any

from transit.compiler.report.data import Report


def render(report: Report) -> str:
    """Return one HTML file that needs nothing else: equal reports, equal bytes."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from transit.compiler.report import charts
    from transit.units import format_bytes

    environment = Environment(
        loader=PackageLoader("transit.compiler.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {"size": format_bytes, "ms": _format_ms}
    environment.filters.update(filters)
    page = environment.get_template("page.html.j2")
    return page.render(report=report, charts=charts) + "\n"


def _format_ms(duration_ns: float) -> str:
    return f"{duration_ns / 1e6:,.2f} ms"
