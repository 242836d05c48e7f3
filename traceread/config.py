"""The user's own names: traceread.toml beside the traces, or a file given with --config."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from traceread.categories.host import HostNames
from traceread.errors import ConfigError
from traceread.records import record

FILE_NAME = "traceread.toml"
_LARGEST_FILE = 1 << 20
_SECTIONS = frozenset(("kernels", "ranges", "steps", "model"))


@record
class Config:
    """What traceread.toml says.

    Attributes:
        path: the file, None for the defaults.
        kernels: `[[kernels]]` entries: pattern, category, family (optional), fused (optional); they win over the shipped ones.
        ranges: `[ranges]` range name → cause ("data_wait", "host_sync", "checkpoint", "allocation", "compile"), "step" or "ignore".
        step_pattern: `[steps] pattern`, a regular expression for the names of step ranges.
        micro_steps: `[steps] micro_steps`, consecutive ranges that make one step.
        model: `[model]`, the model description as in run.json.
    """

    path: Path | None = None
    kernels: tuple[Mapping[str, Any], ...] = ()
    ranges: Mapping[str, str] = field(default_factory=dict)
    step_pattern: str | None = None
    micro_steps: int = 1
    model: Mapping[str, Any] = field(default_factory=dict)

    @property
    def host_names(self) -> HostNames:
        """Meanings of host names with the user's own first."""
        return HostNames(self.ranges)


def load_config(path: Path) -> Config:
    """The configuration in a file.

    Raises:
        ConfigError: the file cannot be read, is no TOML, or says something unknown.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_FILE + 1)
        if len(text) > _LARGEST_FILE:
            raise ConfigError(f"{path} is larger than settings can be", "give another file with --config FILE")
        data = tomllib.loads(text.decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}", "give an existing file with --config FILE") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}", "see the configuration section of the README for the format") from None
    unknown = sorted(set(data) - _SECTIONS)
    if unknown:
        raise ConfigError(f"{path}: unknown section [{unknown[0]}]", f"sections are {', '.join(sorted(_SECTIONS))}")
    steps = _table(path, data, "steps")
    micro_steps = steps.get("micro_steps", 1)
    if not isinstance(micro_steps, int) or micro_steps < 1:
        raise ConfigError(f"{path}: [steps] micro_steps = {micro_steps!r} is not a positive whole number", "write micro_steps = 4")
    pattern = steps.get("pattern")
    if pattern is not None and not isinstance(pattern, str):
        raise ConfigError(f"{path}: [steps] pattern is not a string", 'write pattern = "my step"')
    kernels = data.get("kernels", [])
    if not isinstance(kernels, list) or not all(isinstance(k, dict) for k in kernels):
        raise ConfigError(f"{path}: [[kernels]] must be a list of tables", 'write [[kernels]] and below it pattern = "…", category = "…"')
    ranges = _table(path, data, "ranges")
    if not all(isinstance(v, str) for v in ranges.values()):
        raise ConfigError(f"{path}: every entry of [ranges] is name = meaning, both strings", 'write "my_fetch" = "data_wait"')
    config = Config(path, tuple(kernels), ranges, pattern, micro_steps, _table(path, data, "model"))
    _ = config.host_names  # refuses unknown meanings now, with the file's name at hand
    return config


def _table(path: Path, data: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = data.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: [{name}] is not a table", f"write [{name}] on a line of its own")
    return table


def find_config(paths: list[Path]) -> Config:
    """The traceread.toml beside the traces, the defaults if there is none."""
    for path in paths:
        candidate = (path if path.is_dir() else path.parent) / FILE_NAME
        if candidate.is_file():
            return load_config(candidate)
    return Config()
