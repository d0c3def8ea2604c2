"""What is known of an encoder before it is loaded."""

from collections.abc import Callable
from dataclasses import dataclass, field

from sheafed.datasets import cache
from sheafed.datasets.cache import RemoteFiles
from sheafed.datasets.sources import DataFile, Source


@dataclass(frozen=True)
class EncoderInfo:
    """A named encoder before it is loaded.

    Args:
        dim: the size d of a latent.
        description: of the model, in a few words.
        licence: as its package states it.
        needs: the optional libraries that it imports.
        remote: its files.
        revision: to be increased when a change of code changes the latents.
    """

    dim: int
    description: str
    licence: str
    needs: tuple[str, ...]
    remote: RemoteFiles
    revision: int = field(default=1, kw_only=True)

    def contents(self, log: Callable[[str], None]) -> dict[str, bytes]:
        """Return the contents of its files by name, fetching those that the cache lacks."""
        if cache.missing_files(self.remote):  # a complete cache may be read-only
            cache.fetch(self.remote, log=log)
        return {file.name: cache.read(self.remote, file) for file in self.remote.files}

    def identity(self) -> list[object]:
        """Return what latents depend on besides samples and options, for the keys of a cache."""
        digests = [file.sha256 for file in self.remote.files]
        return [self.remote.name, self.revision, digests]


def encoder_files(
    name: str, sources: tuple[Source, ...], *files: tuple[str, int, str]
) -> RemoteFiles:
    """Return the files of an encoder, each given by name, size and SHA-256."""
    return RemoteFiles(name, tuple(DataFile(*file) for file in files), sources, "encoders")
