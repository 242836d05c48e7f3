"""Step logs for tests, as StepTimer writes them."""

import json
from pathlib import Path

S = 10**9
HOUR = 3600 * S


class Writer:
    """Writes a run's segments; `t` goes on by itself."""

    def __init__(self, directory, run="run", gpus=1, t=1_700_000_000 * S):
        self.directory, self.run, self.gpus, self.t = Path(directory), run, gpus, t
        self.directory.mkdir(parents=True, exist_ok=True)
        self.number = self.step = self.tokens = 0

    def put(self, kind, **values):
        head = {"t": self.t, "kind": kind, "run": self.run, "segment": self.number, "rank": 0, "step": self.step, "tokens": self.tokens}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(head | values) + "\n")

    @property
    def path(self):
        return self.directory / f"steps.segment{self.number}.jsonl"

    def start(self, step=0, tokens=0, number=0, **values):
        self.step, self.tokens, self.number = step, tokens, number
        self.put("restart" if number else "start", world_size=self.gpus, **values)
        return self

    def interval(self, steps, tokens, ns, **values):
        self.t += ns
        self.step += steps
        self.tokens += tokens
        self.put("interval", **{"steps": steps, "step_ns": ns // steps, "step_ns_max": ns // steps} | values)
        return self

    def aside(self, kind, ns, **values):
        self.t += ns
        self.put(kind, duration_ns=ns, **values)
        return self
