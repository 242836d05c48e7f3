"""Reports logged to Weights & Biases, through its own client (extra `wandb`)."""

from __future__ import annotations

from typing import Any

from traceread.errors import MissingData
from traceread.history.metrics import metrics_of, parameters_of
from traceread.report import Report


def log_report(report: Report, run: Any = None, step: int | None = None) -> None:
    """Nothing; the run now has the report's metrics, its parameters in the configuration, and the page of the report.

    Args:
        report: what to log.
        run: what `wandb.init` returned; by default the active one.
        step: training step to log at.

    Raises:
        MissingData: wandb is not installed, or no run is active.
    """
    try:
        import wandb
    except ImportError:
        raise MissingData("wandb is not installed", 'pip install "traceread[wandb]"') from None
    from traceread.reporters import render

    run = run if run is not None else wandb.run
    if run is None:
        raise MissingData("no W&B run is active", "call wandb.init() first, or give its result as run=")
    page = {"traceread/report": wandb.Html(render(report, "html"))}
    run.log({**metrics_of(report), **page}, step=step)
    run.config.update(parameters_of(report), allow_val_change=True)
