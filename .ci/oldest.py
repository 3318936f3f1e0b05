"""The oldest versions that pyproject.toml allows, as pip constraints: what ``make oldest`` installs.

torch, SUMO and the tools of ``dev`` are left out: they are tested in the versions of constraints.txt.
"""

import re
import tomllib
from pathlib import Path

project = tomllib.loads(
    (Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8")
)["project"]
extras = project["optional-dependencies"]
lines = sum(
    (extras[name] for name in ("fast", "cluster", "test")),
    project["dependencies"],
)
for line in lines:
    if not line.startswith("superarm["):
        name, version = re.fullmatch(r"([\w-]+)>=([\d.]+)", line).groups()
        print(f"{name}=={version}")
