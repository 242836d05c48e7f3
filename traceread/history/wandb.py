"""Reports and whole runs logged to Weights & Biases, through its own client (extra `wandb`)."""

from __future__ import annotations

from typing import Any

from traceread.errors import MissingData
from traceread.history.metrics import metrics_of, metrics_of_point, metrics_of_run, parameters_of, parameters_of_run
from traceread.report import Report
from traceread.runs.summary import RunSummary


def log_report(report: Report, run: Any = None, step: int | None = None) -> None:
    """Nothing; the run now has the report's metrics, its parameters in the configuration, and the page of the report.

    Args:
        report: what to log.
        run: what `wandb.init` returned; by default the active one.
        step: training step to log at.

    Raises:
        MissingData: wandb is not installed, or no run is active.
    """
    from traceread.reporters import render

    wandb = _imported()
    run = run if run is not None else wandb.run
    if run is None:
        raise MissingData("no W&B run is active", "call wandb.init() first, or give its result as run=")
    page = {"traceread/report": wandb.Html(render(report, "html"))}
    run.log({**metrics_of(report), **page}, step=step)
    run.config.update(parameters_of(report), allow_val_change=True)


def log_run(run: RunSummary, into: Any = None) -> None:
    """Nothing; the W&B run now has a run of `traceread runs`: its figures as summary, and its intervals over the tokens seen.

    Args:
        run: what to log.
        into: what `wandb.init` returned; by default the active run, else a new one of the run's name.

    Raises:
        MissingData: wandb is not installed.
    """
    wandb = _imported()
    into = into if into is not None else wandb.run
    if into is None:
        with wandb.init(name=run.history.name) as new:
            return log_run(run, new)
    into.define_metric("traceread/tokens")
    into.define_metric("traceread/interval/*", step_metric="traceread/tokens")
    for point in run.curve:
        into.log({"traceread/tokens": point.tokens or point.step, **metrics_of_point(point)})
    into.summary.update(metrics_of_run(run))
    into.config.update(parameters_of_run(run), allow_val_change=True)
    return None


def _imported() -> Any:
    try:
        import wandb
    except ImportError:
        raise MissingData("wandb is not installed", 'pip install "traceread[wandb]"') from None
    return wandb
