"""Namespaces of a program's own, in which it may make networks and disks.

Interfaces, mounts and processes vanish with the program, whatever ends it. Linux only, with
`unshare`; without root where the system lets users make namespaces.
"""

import os
import shutil
import subprocess
import sys

INSIDE = "SHEAFED_CHAOS_INSIDE"
TOOLS = ("unshare", "ip", "mount", "cc")


def missing_tools() -> list[str]:
    """Return the programs that machines need and this system does not have."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def enter_namespaces() -> None:
    """Run this program again in namespaces of its own, unless it is there; exit with its code."""
    if os.environ.get(INSIDE):
        return
    if missing := missing_tools():
        raise SystemExit(f"needs Linux with {', '.join(missing)}")
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command += [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    # The shell is the first process there, and so the one that ends those that lost their parent.
    command += ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, *sys.argv]
    code = subprocess.run(command, env={**os.environ, INSIDE: "1"}, check=False).returncode
    raise SystemExit(code)
