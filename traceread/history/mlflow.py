"""Reports and whole runs logged to MLflow, through its own client (extra `mlflow`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from traceread.errors import MissingData
from traceread.history.metrics import metrics_of, metrics_of_point, metrics_of_run, parameters_of, parameters_of_run
from traceread.report import Report
from traceread.runs.summary import RunSummary

_A_CALL = 1_000
"""Metrics that MLflow takes in one call."""


def log_report(report: Report, run_id: str | None = None, step: int | None = None) -> str:
    """The id of the MLflow run that now has the report's metrics and parameters, and the report itself as report.json and report.md.

    Args:
        report: what to log.
        run_id: the run; by default the active one, else a new one in the active experiment.
        step: training step to log at.

    Raises:
        MissingData: mlflow is not installed.
    """
    from traceread.reporters import render

    mlflow = _imported()
    active = mlflow.active_run()
    if run_id is None and active is None:
        with mlflow.start_run() as run:
            return log_report(report, run.info.run_id, step)
    run_id = run_id or active.info.run_id
    client = mlflow.MlflowClient()
    for name, value in metrics_of(report).items():
        client.log_metric(run_id, name, value, step=step or 0)
    for name, text in parameters_of(report).items():
        client.set_tag(run_id, name, text)
    client.log_text(run_id, render(report, "json"), "traceread/report.json")
    client.log_text(run_id, render(report, "markdown"), "traceread/report.md")
    return run_id


def log_run(run: RunSummary, run_id: str | None = None) -> str:
    """The id of the MLflow run that now has a run of `traceread runs`: its figures, and its intervals with tokens seen as the step.

    Args:
        run: what to log.
        run_id: the MLflow run; by default the active one, else a new one of the run's name in the active experiment.

    Raises:
        MissingData: mlflow is not installed.
    """
    mlflow = _imported()
    active = mlflow.active_run()
    if run_id is None and active is None:
        with mlflow.start_run(run_name=run.history.name) as new:
            return log_run(run, new.info.run_id)
    run_id = run_id or active.info.run_id
    metrics = [m for p in run.curve for m in _metrics(metrics_of_point(p), p.t, p.tokens or p.step)]
    if run.curve:
        metrics += _metrics(metrics_of_run(run), run.curve[-1].t, run.curve[-1].tokens)
    client = mlflow.MlflowClient()
    for at in range(0, len(metrics), _A_CALL):
        client.log_batch(run_id, metrics=metrics[at : at + _A_CALL])
    client.log_batch(run_id, tags=[mlflow.entities.RunTag(name, text) for name, text in parameters_of_run(run).items()])
    return str(run_id)


def _metrics(values: Mapping[str, float], t: int, step: int) -> Sequence[Any]:
    from mlflow.entities import Metric

    return [Metric(name, value, t // 10**6, step) for name, value in values.items()]


def _imported() -> Any:
    try:
        import mlflow
    except ImportError:
        raise MissingData("mlflow is not installed", 'pip install "traceread[mlflow]"') from None
    return mlflow
