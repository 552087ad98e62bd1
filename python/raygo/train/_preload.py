"""Workers are forked from a process that has imported what each of them needs."""
from __future__ import annotations

import logging
import threading

from raygo._calls import call

log = logging.getLogger("raygo.train")
_SAY_AFTER_S = 10.0


class Preloading:
    """Has the process that workers are forked from import modules, without waiting for it.

    Parameters
    ----------
    modules : tuple of str
        Their names.
    """

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._modules = modules
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._call, name="raygo-preload", daemon=True)
        self._thread.start()

    def _call(self) -> None:
        try:
            call("modules.preload", {"modules": list(self._modules)})
        except BaseException as error:
            self._error = error

    def wait(self) -> None:
        """Until it has, or has turned out not to be able to: then workers import for themselves."""
        self._thread.join(_SAY_AFTER_S)
        if self._thread.is_alive():
            log.info("the workers start when %s is imported, which takes long here", ", ".join(self._modules))
            self._thread.join()
        if self._error is not None:
            raise self._error
