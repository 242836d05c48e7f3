"""Jobs to simulate: one file per scenario, each with a `JOB` or a tuple of `JOBS`.

To add one, put a file beside this: a step is a tuple of phases (`traceread.simulate.phases`, parts of a model in
`traceread.simulate.models`); what is wrong with it stands in a `Fault`, which also says what stands there once it is mended.
"""

from __future__ import annotations

import importlib
import pkgutil

from traceread.simulate.job import Job


def scenarios() -> dict[str, Job]:
    """Every scenario by name, in order of names."""
    jobs: dict[str, Job] = {}
    for module in pkgutil.iter_modules(__path__):
        loaded = importlib.import_module(f"{__name__}.{module.name}")
        for job in getattr(loaded, "JOBS", ()) or (loaded.JOB,):
            jobs[job.name] = job
    return dict(sorted(jobs.items()))
