"""Reports logged to MLflow, through its own client (extra `mlflow`)."""

from __future__ import annotations

from traceread.errors import MissingData
from traceread.history.metrics import metrics_of, parameters_of
from traceread.report import Report


def log_report(report: Report, run_id: str | None = None, step: int | None = None) -> str:
    """The id of the MLflow run that now has the report's metrics and parameters, and the report itself as report.json and report.md.

    Args:
        report: what to log.
        run_id: the run; by default the active one, else a new one in the active experiment.
        step: training step to log at.

    Raises:
        MissingData: mlflow is not installed.
    """
    try:
        import mlflow
    except ImportError:
        raise MissingData("mlflow is not installed", 'pip install "traceread[mlflow]"') from None
    from traceread.reporters import render

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
