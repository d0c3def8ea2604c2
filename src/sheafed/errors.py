"""Every error and warning that `sheafed` raises on purpose.

The message of an error states what was given, what was expected and what to do. All errors derive
from `SheafedError`; those about arguments are `ValueError`s too, so ordinary handlers catch them.
"""


class SheafedError(Exception):
    """The base of every error raised on purpose."""


class InputError(SheafedError, ValueError):
    """An argument is invalid."""


class ShapeError(InputError):
    """A tensor has the wrong number of dimensions, or sizes that do not fit each other."""


class EmptyInputError(ShapeError):
    """A tensor or a collection is empty."""


class NonFiniteError(InputError):
    """A tensor holds NaN or infinity."""


class DtypeError(InputError):
    """A tensor has the wrong type."""


class ManifoldError(InputError):
    """The columns of a matrix are not orthonormal."""


class SingularCovarianceError(InputError):
    """A covariance is singular: some direction has no variance."""


class RankError(InputError):
    """The rank of a matrix is too low for an operation."""


class MissingPilotsError(InputError):
    """Agents have too few pilots in common."""


class LatentSizeError(ShapeError):
    """An encoder does not return latents `(n, d)` of one fixed size d."""


class OptimizerError(InputError):
    """An optimiser or scheduler does not belong to the agent that it was given to."""


class GraphError(InputError):
    """A graph is invalid."""


class DisconnectedGraphError(GraphError):
    """A graph is not connected."""


class UnknownAgentError(GraphError, KeyError):
    """A name that no agent has."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would print the message in quotation marks


class AlignmentFormatError(SheafedError):
    """A saved alignment cannot be read."""


class EncoderMismatchError(SheafedError):
    """Latents cannot come from the encoder that was aligned."""


class AlignmentQualityError(SheafedError):
    """Maps are worse on held-out pilots than was demanded."""


class MessageError(SheafedError):
    """A message differs from what was agreed, or its bytes are not a message."""

    def __init__(self, reason: str, explanation: str) -> None:
        super().__init__(reason, explanation)
        self.reason = reason
        """The check that failed, in one word, e.g. "shape"; rejections are counted by it."""

    def __str__(self) -> str:
        return str(self.args[1])


class ConfigError(InputError):
    """A configuration has an unknown key or an invalid value."""


class SweepError(SheafedError):
    """Some runs of a sweep failed, or cannot be started."""


class BenchError(SheafedError):
    """A benchmark cannot be run."""


class HandshakeError(SheafedError):
    """Neighbours run different configurations."""


class RunExistsError(SheafedError):
    """A directory already holds a run, which must not be overwritten."""


class RunInUseError(SheafedError):
    """Another process or thread writes into a run directory."""


class MissingDependencyError(SheafedError, ImportError):
    """An optional dependency is not installed."""


class TransportClosedError(SheafedError):
    """A transport was used after it had been closed."""


class ClusterError(SheafedError):
    """The processes of a cluster cannot connect, or do not run in step."""


class LostRankError(ClusterError):
    """Another process of a cluster has ended, or does not answer."""


class NetworkError(SheafedError):
    """An agent cannot connect to its network."""


class DuplicateAgentError(NetworkError):
    """Another process is in the network under the same name."""


class TreeError(InputError):
    """A nested state holds a value that cannot be stored, or its stored form is invalid."""


class CheckpointError(SheafedError):
    """A checkpoint cannot be written, or a file is not a valid one."""


class NetworkMismatchError(CheckpointError):
    """A network in a file is not one of the agents, pilots or method that were given."""


class ExportError(SheafedError):
    """A module cannot be written as a file for other runtimes."""


class DataError(SheafedError):
    """A data set cannot be loaded by its name."""


class CorruptedDataError(DataError):
    """The SHA-256 of a cached file is wrong."""


class DataUnavailableError(DataError):
    """Every source of a data set failed."""


class DataFormatError(DataError):
    """A data file is not in the expected format."""


class SourceError(DataError):
    """One source of a data set failed; others may follow."""


class ReportError(SheafedError):
    """A directory holds no run to report, or a report cannot be written."""


class OutputError(SheafedError, OSError):
    """A file or a directory cannot be written."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended a training; the message says what was saved.

    It is no `SheafedError`: what catches errors must not catch it.
    """

    def __init__(self, message: str, checkpoint: int | None = None) -> None:
        super().__init__(message)
        self.checkpoint = checkpoint
        """The round of the checkpoint from which the training can go on, if there is one."""


class SheafedWarning(UserWarning):
    """The base of every warning issued on purpose."""


class IllConditionedWarning(SheafedWarning):
    """The fast solver would lose digits here; the slower, exact one was used."""


class DisconnectedWarning(SheafedWarning):
    """After an agent left, some agents cannot reach each other any more."""


class MissingPilotsWarning(SheafedWarning):
    """Agents have too few pilots in common for a map; their edge was left out."""


class RepeatedPilotsWarning(SheafedWarning):
    """Some pilots are copies of others; each counts once."""


class UncheckedEncoderWarning(SheafedWarning):
    """Nothing tells whether an encoder, or a head, is the one that a network was trained with."""


class FixedSizeWarning(SheafedWarning):
    """An exported file takes inputs of one size, where those of the agent have several."""


class UndeterminedMapWarning(SheafedWarning):
    """The pilots do not determine a map; on a subspace it is an arbitrary choice."""


class NoLockWarning(SheafedWarning):
    """A file system knows no locks; nothing keeps a second process from writing to the same run."""


class InputCastWarning(SheafedWarning):
    """Inputs have more digits than the encoder computes with; they were rounded."""


class UnequalPassesWarning(SheafedWarning):
    """Some agents pass over their training data far more often than others."""


class UnusedSamplesWarning(SheafedWarning):
    """A partition leaves out samples: those of classes that it gives to no agent."""
