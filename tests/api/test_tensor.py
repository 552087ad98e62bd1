"""Arrays travel as tensors where they can, and come back the same either way."""
import numpy as np
import pytest

import raygo
from raygo import _binding

TENSORS = [np.arange(12).reshape(3, 4), np.array(5.5), np.ones(5, bool), np.ones((2, 3, 4), np.complex64), np.ones(3, np.complex128),
           np.ones(4, np.float16), np.arange(7, dtype=np.int8), np.arange(7, dtype=np.uint64), np.ones((300, 300), np.float32)]
OTHERS = [np.zeros((0, 3)), np.arange(10, dtype=np.uint8)[::2], np.asfortranarray(np.arange(12.0).reshape(3, 4)), np.ones(3, ">i4"),
          np.ones(3, np.longdouble), np.array(["a", "bb"]), np.arange(4).astype("M8[s]"), np.array([1, "x", None], dtype=object),
          np.zeros(3, dtype=[("a", "i4")]), np.ma.masked_array([1, 2], [True, False])]


@pytest.fixture(scope="module", autouse=True)
def runtime():
    raygo.shutdown()
    raygo.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield
    raygo.shutdown()


@pytest.mark.parametrize("array", TENSORS + OTHERS, ids=lambda a: f"{a.dtype}{a.shape}")
def test_comes_back_the_same(array):
    assert (_binding.dumps(array)[0] == 5) == any(array is t for t in TENSORS)  # RG_B_TENSOR
    got = raygo.get(raygo.put(array))
    assert type(got) is type(array) and got.dtype == array.dtype and got.shape == array.shape
    assert np.array_equal(got, array)
    if any(array is t for t in TENSORS):
        assert not got.flags.writeable and not got.flags.owndata


def test_a_broken_tensor_is_refused():
    whole = _binding.dumps(np.arange(4))
    for cut in range(1, len(whole)):
        with pytest.raises((ValueError, TypeError)):
            _binding.loads(whole[:cut])
    for at in range(16, 56):  # buffer entry and header: a size that does not fit must never be read
        broken = bytearray(whole)
        broken[at] ^= 0x7F
        try:
            value = _binding.loads(bytes(broken))
        except (ValueError, TypeError, MemoryError):
            continue
        assert isinstance(value, np.ndarray) and value.nbytes <= len(whole)


def test_subclasses_keep_their_class():
    class Own(np.ndarray):
        pass

    assert type(raygo.get(raygo.put(np.arange(3).view(Own)))).__name__ == "Own"
