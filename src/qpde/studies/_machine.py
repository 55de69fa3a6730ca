"""The machine, the versions and the date of a study."""

import datetime
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """Processor, cores, system, Python, and the load that other programs make."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.system(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def versions(*names: str) -> dict[str, str]:
    """The versions of installed packages."""
    return {name: importlib.metadata.version(name) for name in names}


def today() -> str:
    """The date, as in 2026-01-31."""
    return datetime.date.today().isoformat()
