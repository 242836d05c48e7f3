"""A short evaluation between the steps: time that belongs to no step."""

from traceread.simulate.job import Job
from traceread.simulate.models import SHALLOW, STEP, forward
from traceread.simulate.phases import Annotate, Item

JOBS = (
    Job(
        "eval-between-steps",
        "A short evaluation follows every step, outside its range.",
        STEP,
        between=(Annotate("evaluate", (forward(8), Item())),),
        step_range="user",
        windows="as recorded",
        machine=SHALLOW,
    ),
)
