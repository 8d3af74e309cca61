"""The charts of the page, as SVG inside of HTML."""

from __future__ import annotations

from markupsafe import Markup

from transit.compiler.report import svg
from transit.compiler.report.data import Crossing, Gpu, Report
from transit.compiler.report.svg import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Scale

GIB, GB, MS = float(1 << 30), 1e9, 1e6
HEIGHT = 260
BAR = 26


def memory(gpu: Gpu, budget_bytes: int) -> Markup:
    """Draw what is on the GPU over the step, in layers under the budget."""
    found = gpu.memory
    most = max(float(budget_bytes), float(found.total_bytes.max()))
    x = Scale(0, gpu.step_ns / MS, LEFT, WIDTH - RIGHT)
    y = Scale(0, most * 1.08 / GIB, HEIGHT - BOTTOM, TOP)
    parts = svg.axes(x, y, "time in the step, ms", "GiB on the GPU")
    below = [0.0] * len(found.fixed_bytes)
    layers = (
        ("fixed", found.fixed_bytes),
        ("resident", found.resident_bytes),
        ("windowed", found.windowed_bytes),
    )
    for kind, layer in layers:
        above = [a + b / GIB for a, b in zip(below, layer.tolist(), strict=True)]
        parts.append(svg.area(_steps(x, y, above) + _steps(x, y, below)[::-1], kind))
        below = above
    budget = [budget_bytes / GIB] * len(below)
    parts.append(svg.area(_steps(x, y, budget) + _steps(x, y, below)[::-1], "free"))
    parts.append(_limit(x, y, budget_bytes / GIB, f"budget {budget_bytes / GIB:.2f}"))
    return Markup(
        svg.figure(
            f"Memory on {gpu.name} over one step",
            f"At most {found.total_bytes.max() / GIB:.2f} GiB of a budget of "
            f"{budget_bytes / GIB:.2f} GiB, predicted.",
            HEIGHT,
            parts,
        )
    )


def link(gpu: Gpu) -> Markup:
    """Draw what crosses the link: to the GPU above the line, to the host below."""
    up, down = gpu.link
    x = Scale(0, gpu.step_ns / MS, LEFT, WIDTH - RIGHT)
    y = Scale(
        *(-down.bytes_per_s * 1.3 / GB, up.bytes_per_s * 1.3 / GB),
        *(HEIGHT - BOTTOM, TOP),
    )
    parts = svg.axes(x, y, "time in the step, ms", "GB/s over the link")
    for crossing, sign, kind in ((up, 1, "h2d"), (down, -1, "d2h")):
        rates = [sign * rate for rate in _gb_per_s(crossing, gpu.step_ns)]
        parts.append(
            svg.area([*_steps(x, y, rates), (x.stop, y(0)), (x.start, y(0))], kind)
        )
        most = crossing.bytes_per_s / GB
        parts.append(_limit(x, y, sign * most, f"{crossing.name}: at most {most:.1f}"))
    parts.append(svg.line(x.start, y(0), x.stop, y(0), "axis"))
    moved = [sum(crossing.moved_bytes) / GIB for crossing in gpu.link]
    return Markup(
        svg.figure(
            f"Use of the link of {gpu.name} over one step",
            f"{moved[0]:.2f} GiB to the GPU and {moved[1]:.2f} GiB to the host, "
            "predicted.",
            HEIGHT,
            parts,
        )
    )


def _gb_per_s(crossing: Crossing, step_ns: float) -> list[float]:
    bin_ns = step_ns / len(crossing.moved_bytes)
    return [moved / bin_ns for moved in crossing.moved_bytes]  # bytes/ns are GB/s


def _steps(x: Scale, y: Scale, values: list[float]) -> list[tuple[float, float]]:
    """Return the corners of a line that keeps each value for an equal time."""
    width = (x.stop - x.start) / len(values)
    points = []
    for index, value in enumerate(values):
        begin = x.start + index * width
        points += [(begin, y(value)), (begin + width, y(value))]
    return points


def _limit(x: Scale, y: Scale, value: float, words: str) -> str:
    place = y(value)
    label = svg.text(
        x.stop, place - 4 if value >= 0 else place + 14, words, "end limit"
    )
    return svg.line(x.start, place, x.stop, place, "limit") + label


def steps(report: Report) -> Markup:
    """Draw the step of each policy as a bar, beside what it is compared with."""
    known = [ns for ns in report.steps_ns.values() if ns is not None]
    left, height = 250, TOP + BAR * len(report.steps_ns) + 4
    x = Scale(0, max(known) / MS, left, WIDTH - 150)
    parts = []
    for index, (name, ns) in enumerate(report.steps_ns.items()):
        y = TOP + index * BAR
        parts.append(svg.text(left - 10, y + 15, name, "end"))
        if ns is None:
            parts.append(svg.text(left + 6, y + 15, "does not fit", "start"))
            continue
        is_plan = "(this plan)" in name
        is_policy = "(" not in name
        kind = "own" if is_plan else "other" if is_policy else "goal"
        parts.append(svg.bar(left, y + 2, max(x(ns / MS) - left, 1), BAR - 8, kind))
        parts.append(svg.text(x(ns / MS) + 6, y + 15, f"{ns / MS:,.2f} ms", "start"))
    words = "; ".join(
        f"{name}: {'does not fit' if ns is None else f'{ns / MS:,.2f} ms'}"
        for name, ns in report.steps_ns.items()
    )
    return Markup(svg.figure("Predicted step of each policy", words, height, parts))


def sweep(report: Report) -> Markup:
    """Draw the step of policy auto for several budgets, and this plan's."""
    points = sorted(report.sweep, key=lambda point: point.gpu_memory_bytes)
    found = [point for point in points if point.predicted_step_ns is not None]
    own = report.plan.prediction
    own_ns = own.step_ns if own else 0
    budget = min(report.plan.gpu_memory_bytes, points[-1].gpu_memory_bytes) / GIB
    most = max([own_ns, *(point.predicted_step_ns or 0 for point in found)])
    x = Scale(0, points[-1].gpu_memory_bytes * 1.04 / GIB, LEFT, WIDTH - RIGHT)
    y = Scale(0, most * 1.08 / MS, HEIGHT - BOTTOM, TOP)
    parts = svg.axes(x, y, "GPU memory, GiB", "ms per step")
    for kind, values in (
        ("bound", [point.bound_step_ns for point in found]),
        ("swept", [point.predicted_step_ns for point in found]),
    ):
        corners = [
            (x(point.gpu_memory_bytes / GIB), y((ns or 0) / MS))
            for point, ns in zip(found, values, strict=True)
        ]
        parts.append(svg.path(corners, kind))
        parts += [_dot(place, f"dot {kind}") for place in corners]
    parts.append(_dot((x(budget), y(own_ns / MS)), "dot own"))
    lacking = [p.gpu_memory_bytes / GIB for p in points if p.predicted_step_ns is None]
    parts += [svg.text(x(gib), y(0) - 6, "none", "middle") for gib in lacking]
    words = "; ".join(
        f"{point.gpu_memory_bytes / GIB:.2f} GiB: "
        f"{(point.predicted_step_ns or 0) / MS:.2f} ms"
        for point in found
    )
    return Markup(
        svg.figure("Predicted step for more and less GPU memory", words, HEIGHT, parts)
    )


def _dot(place: tuple[float, float], kind: str) -> str:
    return f'<circle class="{kind}" cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="4"/>'
