"""What goes wrong in training."""


class SessionMisuseError(Exception):
    """A function for training workers was used in a way it does not allow."""


class TrainingFailedError(RuntimeError):
    """Training ended without a result; ``__cause__`` is what a worker raised."""
