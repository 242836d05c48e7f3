"""A simulator of training steps that knows why its GPUs were idle, and writes what profilers would have recorded.

It shares nothing with the analysis it checks. A `Job` describes a step and the faults planted in it; `simulate` runs it on
simulated host threads, launch queues, streams and collectives; `write_run` writes traces of either format and `truth.json`.

    from traceread.simulate import Capture, scenarios, simulate, write_run
    write_run(simulate(scenarios()["healthy"]), Path("out"), Capture("nsys"))
"""

from traceread.simulate.job import Fault, Job, Machine, Node
from traceread.simulate.output import without, write_run
from traceread.simulate.recording import Capture
from traceread.simulate.scenarios import scenarios
from traceread.simulate.simulation import Run, SimulationError, simulate
from traceread.simulate.truth import step_time

__all__ = [
    "Capture",
    "Fault",
    "Job",
    "Machine",
    "Node",
    "Run",
    "SimulationError",
    "scenarios",
    "simulate",
    "step_time",
    "without",
    "write_run",
]
