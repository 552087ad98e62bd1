"""What goes wrong when the state of a session is asked for."""


class RayStateApiException(Exception):
    """The state could not be had."""

    def __init__(self, err_msg: str, *args: object) -> None:
        super().__init__(err_msg, *args)


class ServerUnavailable(RayStateApiException):
    """There is no session to ask."""

    def __init__(self, err_msg: str = "no session is running here: call raygo.init() first") -> None:
        super().__init__(err_msg)


class DataSourceUnavailable(Exception):
    """A part of the session did not answer."""
