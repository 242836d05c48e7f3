"""Pictures of results: each function takes a result and returns a plotly Figure; nothing is shown, nothing is measured here."""

from __future__ import annotations

from traceread.figures.communication import plot_communication
from traceread.figures.diff import plot_difference, plot_side_by_side
from traceread.figures.fix_list import plot_fix_list
from traceread.figures.image import save_image
from traceread.figures.kernels import plot_families, plot_kernels
from traceread.figures.partition import plot_ranks, plot_steps
from traceread.figures.queue_depth import plot_queue_depth
from traceread.figures.ranks import plot_arrivals, plot_waiting
from traceread.figures.runs import plot_goodput, plot_loss, plot_throughput
from traceread.figures.timeline import plot_timeline
from traceread.figures.trend import plot_trend
from traceread.figures.waterfall import plot_waterfall

__all__ = [
    "plot_arrivals",
    "plot_communication",
    "plot_difference",
    "plot_families",
    "plot_fix_list",
    "plot_goodput",
    "plot_kernels",
    "plot_loss",
    "plot_queue_depth",
    "plot_ranks",
    "plot_side_by_side",
    "plot_steps",
    "plot_throughput",
    "plot_timeline",
    "plot_trend",
    "plot_waiting",
    "plot_waterfall",
    "save_image",
]
