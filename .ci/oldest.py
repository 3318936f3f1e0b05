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
names = ("fast", "cluster", "serve", "client", "postgres", "test")
lines = sum((extras[name] for name in names), project["dependencies"])
for line in lines:
    if not line.startswith("superarm["):
        pattern = r"([\w-]+)(?:\[\w+\])?>=([\d.]+)"  # constraints have no extras
        name, version = re.fullmatch(pattern, line).groups()
        print(f"{name}=={version}")
