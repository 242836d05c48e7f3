"""The recording side, imported by training scripts: captures that answer the questions, and a log of every step.

```python
from traceread import capture

with capture.profile("run/", steps=5, warmup=3) as p:
    for batch in capture.data(loader):
        with capture.range("forward"):
            loss = model(batch)
        ...
        p.step()
```

torch and nvtx (`pip install 'traceread[capture]'`) are imported when something is recorded, not before.
"""

from __future__ import annotations

from traceread.capture.profile import Profiling, profile
from traceread.capture.ranges import PHASES, annotate, data, phase, range
from traceread.capture.step_timer import StepTimer

__all__ = ["PHASES", "Profiling", "StepTimer", "annotate", "data", "phase", "profile", "range"]
