"""Whole runs as one page that can be sent, in the look of the report's page."""

from __future__ import annotations

from traceread.figures.runs import plot_goodput, plot_loss, plot_throughput
from traceread.reporters.page import render_sections
from traceread.reporters.runs import blocks_of, money, runs_heading
from traceread.reporters.sections import Section, plots
from traceread.runs.summary import Runs


def render_runs_page(runs: Runs, plotlyjs: str = "inline") -> str:
    """The page of these runs; `plotlyjs` as for the page of a report."""
    b = blocks_of(runs)
    cost = "" if runs.cost is None else money(runs.cost)
    hours = f"{sum(r.ledger.allocated_gpu_hours for r in runs.runs):,.1f}"
    numbers = tuple((title, text) for title, text in (("GPU hours", hours), ("price", cost)) if text)
    sections = (
        Section("throughput", "Throughput", "Throughput and MFU", (*b["throughput"], *plots(("throughput-plot", plot_throughput(runs))))),
        Section("cost", "GPU hours", "Where the GPU hours went", (*b["costs"], *b["parts"], *plots(("goodput-plot", plot_goodput(runs))))),
        Section("loss", "Loss", "Loss and gradient norm", tuple(plots(("loss-plot", plot_loss(runs))))),
        Section("evaluations", "Evaluations", "Evaluations", b["evaluations"]),
        Section("oddities", "To look at", "What to look at", (*b["stalled"], *b["oddities"], *b["telemetry"])),
        Section("lacking", "Not known", "What is not known", (*b["lacking"], *b["warnings"])),
    )
    head = (runs_heading(runs), (), numbers)
    return render_sections(head, tuple(s for s in sections if s.parts), "traceread runs DIR -o runs.html", plotlyjs)
