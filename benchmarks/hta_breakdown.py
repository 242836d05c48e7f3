"""What HolisticTraceAnalysis takes to load a trace and break its time down; run by kineto_speed.py, in an environment of its own."""

import logging
import sys
import tempfile
import warnings

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    from hta.trace_analysis import TraceAnalysis

    with tempfile.TemporaryDirectory() as directory:
        analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=directory)
        print(analysis.get_temporal_breakdown(visualize=False).to_string())
        print(analysis.get_idle_time_breakdown(ranks=[0], visualize=False)[0].to_string())
