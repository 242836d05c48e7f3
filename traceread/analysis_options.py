"""How a profile is analysed."""

from __future__ import annotations

from dataclasses import field

from traceread.categories.host import HostNames
from traceread.measurements.steps import StepOptions
from traceread.records import record
from traceread.run import Described
from traceread.selection import StepRange


@record
class AnalysisOptions:
    """How a profile is analysed.

    Attributes:
        step_options: how steps are found.
        host_names: meanings of host names.
        steps: which steps to use, by their own numbers; None leaves out the first and partial ones.
        described: what is known about the job beside the traces.
        details: whether to work out also what only tables, JSON and drawings show: the user's ranges, the operators that launch the
            kernels, one step as bars.
    """

    step_options: StepOptions = field(default_factory=StepOptions)
    host_names: HostNames = field(default_factory=HostNames)
    steps: StepRange | None = None
    described: Described = field(default_factory=Described)
    details: bool = True
