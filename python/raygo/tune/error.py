"""What goes wrong in a search."""


class TuneError(Exception):
    """A search cannot start, or has failed as a whole."""


class BadArgument(TuneError, ValueError):
    """What a search was given cannot be used.  Ray says so with either type, depending on when it finds out."""
