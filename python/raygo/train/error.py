"""What goes wrong in training."""


class SessionMisuseError(Exception):
    """A function for training workers was used in a way it does not allow."""


class StorageError(OSError):
    """A file could not be read or written; says which, and on which storage."""


class TrainingFailedError(RuntimeError):
    """Training ended without a result; ``__cause__`` is what a worker raised."""
