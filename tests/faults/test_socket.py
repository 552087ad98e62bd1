"""The session's socket: nonsense ends that connection only; another user gets nowhere."""
import os
import random
import socket
import stat
import struct
import subprocess
import sys

import pytest

import raygo


def address():
    found = raygo.get_runtime_context().gcs_address
    assert found.startswith("unix:"), found
    return found.removeprefix("unix:")


def frame(kind, payload=b"", flags=0, number=0):
    payload += b"\0" * (-len(payload) % 8)
    return struct.pack("<IHHQ", len(payload), kind, flags, number) + payload


def still_works():
    @raygo.remote
    def f(x):
        return x + 1

    assert raygo.get([f.remote(i) for i in range(20)], timeout=20) == list(range(1, 21))


def closed_by_engine(s):
    s.settimeout(10)
    try:
        while s.recv(1 << 16):
            pass
        return True
    except ConnectionError:
        return True
    except TimeoutError:
        return False


@pytest.mark.parametrize("nonsense", [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\xff" * 64,
    struct.pack("<IHHQ", 0xFFFFFFF0, 3, 0, 1),
    frame(1, b"\xc1\xc1\xc1\xc1"),
    frame(3, b"\0" * 8),
    frame(9, b"\1" * 24),
])
def test_nonsense_ends_that_connection(runtime, nonsense):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(address())
        s.sendall(nonsense)
        assert closed_by_engine(s)
    still_works()


def hello():
    import msgpack

    return frame(1, msgpack.packb({"version": raygo.__version__, "role": "client", "pid": os.getpid()}))


def test_random_frames_after_a_good_hello(runtime):
    rng = random.Random(4711)
    for _ in range(150):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(10)
            s.connect(address())
            s.sendall(hello())
            for _ in range(rng.randrange(1, 8)):
                body = rng.randbytes(8 * rng.randrange(0, 12))
                if rng.random() < 0.5:   # counts that promise more than there is
                    body = struct.pack("<IIQQ", rng.choice([0, 1, 2**31, 2**32 - 1]), rng.getrandbits(32), 0, 0) + body
                try:
                    s.sendall(frame(rng.randrange(0, 80), body, rng.getrandbits(8), rng.choice([0, 1, 2**40, 2**64 - 1])))
                except OSError:
                    break
    still_works()


def test_cut_off_in_the_middle(runtime):
    for cut in range(1, 40):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(address())
            s.sendall(hello()[:cut])
    still_works()


def test_socket_is_private(runtime):
    path = address()
    assert stat.S_IMODE(os.stat(path).st_mode) & 0o077 == 0
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) & 0o077 == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_cannot_connect(runtime):
    path = address()
    code = ("import os, socket, sys; os.setgid(65534); os.setuid(65534); s = socket.socket(socket.AF_UNIX)\n"
            "try: s.connect(sys.argv[1])\n"
            "except PermissionError: print('refused'); sys.exit()\n"
            "s.settimeout(5)\n"
            "try: s.sendall(b'x' * 16); print('data' if s.recv(10) else 'closed')\n"
            "except ConnectionError: print('closed')")
    assert subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=30).stdout.strip() == "refused"
    # Even where the folder's mode lets somebody through, the peer's credentials do not match.
    folder = os.path.dirname(path)
    os.chmod(path, 0o666)
    parents = [folder, os.path.dirname(folder)]
    modes = [stat.S_IMODE(os.stat(p).st_mode) for p in parents]
    try:
        for p in parents:
            os.chmod(p, 0o755)
        out = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=30).stdout.strip()
    finally:
        os.chmod(path, 0o600)
        for p, m in zip(parents, modes, strict=True):
            os.chmod(p, m)
    assert out in ("closed", "refused")
    still_works()
