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


def why_impossible() -> str | None:
    """Return why this system cannot make namespaces with machines in them; None if it can."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"needs Linux with {', '.join(missing)}"
    tried = subprocess.run(
        [*_unshare(), "ip", "link", "add", "br0", "type", "bridge"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"cannot make namespaces: {tried.stderr.strip()}" if tried.returncode else None


def enter_namespaces() -> None:
    """Run this program again in namespaces of its own, unless it is there; exit with its code."""
    if os.environ.get(INSIDE):
        return
    if reason := why_impossible():
        raise SystemExit(reason)
    # The shell is the first process there, and so the one that ends those that lost their parent.
    command = [*_unshare(), "sh", "-c", '"$@"; exit $?', "sh", sys.executable, *sys.argv]
    code = subprocess.run(command, env={**os.environ, INSIDE: "1"}, check=False).returncode
    raise SystemExit(code)


def _unshare() -> list[str]:
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return command if os.geteuid() == 0 else [*command, "--user", "--map-root-user"]
