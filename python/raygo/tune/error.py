"""What goes wrong in a search."""


class TuneError(Exception):
    """A search cannot start, or has failed as a whole."""
