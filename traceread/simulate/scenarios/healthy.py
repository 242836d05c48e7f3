"""A data-parallel job that keeps its GPUs busy."""

from traceread.simulate.job import Job
from traceread.simulate.models import SHALLOW, STEP

JOB = Job("healthy", "The GPU is busy all the time; little communication is exposed.", STEP, machine=SHALLOW)
