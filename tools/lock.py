"""Write a lock file: the exact versions and SHA-256 of everything that a deployment installs.

    python tools/lock.py --extra network > requirements.lock
    pip install --require-hashes --no-deps -r requirements.lock

pip resolves what `pyproject.toml` declares, within `constraints.txt`, for the Python and the system
that run this program, from the package index that pip is configured with. The file holds names,
versions and digests only, no address and no path, so it does not say from where to install.
"""

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def requirements(project: Mapping[str, Any], extras: Iterable[str]) -> list[str]:
    """Return what a project declares, mandatory and under some extras."""
    table = project["project"]
    known = table.get("optional-dependencies", {})
    if unknown := sorted(set(extras) - set(known)):
        sys.exit(f"error: unknown extra {', '.join(unknown)}; extras: {', '.join(known)}")
    return [*table["dependencies"], *(need for extra in extras for need in known[extra])]


def resolve(needs: Sequence[str], options: Sequence[str] = ()) -> dict[str, Any]:
    """Return pip's report of what it would install into an empty environment."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.json")
        command = [sys.executable, "-P", "-m", "pip", "install", "--dry-run", "--ignore-installed"]
        command += ["--quiet", "--only-binary", ":all:", "--report", str(report), *options, *needs]
        if subprocess.run(command, stdout=sys.stderr).returncode:
            sys.exit("error: pip found no set of versions that fits, see above")
        found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
        return found


def lock_lines(report: Mapping[str, Any]) -> list[str]:
    """Return the lines of a lock file, sorted by name."""
    lines = []
    for item in report["install"]:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        digest = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
        if digest is None:
            sys.exit(f"error: {name} {version} is no archive with a SHA-256: it cannot be locked")
        canonical = re.sub(r"[-_.]+", "-", name).lower()
        lines.append(f"{canonical}=={version} --hash=sha256:{digest}")
    return sorted(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--extra", action="append", default=[], help="repeatable, e.g. network")
    given = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needs = requirements(project, given.extra)
    lines = lock_lines(resolve(needs, ["--constraint", str(ROOT / "constraints.txt")]))
    with_extras = f"[{','.join(given.extra)}]" if given.extra else ""
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    print(f"# sheafed{with_extras} {project['project']['version']} on {system}; by tools/lock.py")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
