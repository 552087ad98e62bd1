"""Mixed precision, once `raygo.train.torch.accelerate(amp=True)` has asked for it: what the loop's helpers do then."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

enabled = False
_scaler: Any = None


def enable() -> None:
    """Turn it on in this worker."""
    global enabled
    enabled = True


def scaler() -> Any:
    """The worker's gradient scaler; None on the CPU, whose bfloat16 has float32's range and needs none."""
    global _scaler
    import torch

    from raygo.train.torch.train_loop_utils import get_device

    if enabled and _scaler is None and get_device().type == "cuda":
        _scaler = torch.amp.GradScaler("cuda")
    return _scaler


class Autocast:
    """A model's forward under autocast."""

    def __init__(self, forward: Any, device_type: str) -> None:
        self._forward = forward
        self._device_type = device_type

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import torch

        with torch.autocast(self._device_type):
            return _wide(self._forward(*args, **kwargs))


def _wide(item: Any) -> Any:
    """Outputs in float32, so that losses are computed in it."""
    import torch

    if isinstance(item, torch.Tensor):
        return item.float() if item.dtype in (torch.float16, torch.bfloat16) else item
    if isinstance(item, dict):
        return type(item)((key, _wide(value)) for key, value in item.items())
    if isinstance(item, (list, tuple)) and not hasattr(item, "_fields"):
        return type(item)(_wide(value) for value in item)
    return item


class ScaledOptimizer:
    """An optimizer whose `step` undoes the scaling of the gradients; anything else is the optimizer's own."""

    def __init__(self, optimizer: torch.optim.Optimizer, scaler: Any) -> None:
        self.optimizer = optimizer
        self.scaler = scaler

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def step(self, closure: Any = None) -> None:
        """A step, left out where the gradients overflowed."""
        if closure is not None:
            raise ValueError("a scaled optimizer takes no closure: call backward() and then step()")
        self.scaler.step(self.optimizer)
        self.scaler.update()
