"""What checkpoints with a framework's model have in common."""
from __future__ import annotations

import base64
from typing import Any

from raygo.train._checkpoint import Checkpoint

_KEY = "preprocessor_pkl"


class FrameworkCheckpoint(Checkpoint):
    """A checkpoint with a model, and if wanted with the object that prepares its inputs."""

    def get_preprocessor(self) -> Any:
        """What was given to `set_preprocessor`; None where there is nothing."""
        saved = self.get_metadata().get(_KEY)
        if saved is None:
            return None
        from raygo import cloudpickle

        return cloudpickle.loads(base64.b64decode(saved))

    def set_preprocessor(self, preprocessor: Any) -> None:
        """Keep, beside the model, an object that prepares its inputs; it is pickled."""
        from raygo import cloudpickle

        self.update_metadata({_KEY: base64.b64encode(cloudpickle.dumps(preprocessor)).decode()})

    def keep_preprocessor(self, preprocessor: Any) -> None:
        """`set_preprocessor`, where there is one."""
        if preprocessor is not None:
            self.set_preprocessor(preprocessor)
