"""A worker that does what its connection says, a line at a time, and answers each line."""

import json
import os
import random
import signal
import socket
import sys

_name = ""


def current_name():
    return _name


def _fds():
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            found[fd] = os.readlink("/proc/self/fd/" + fd)
        except OSError:
            pass
    return found


def main(conn_fd, arena_fd):
    global _name
    conn = socket.socket(fileno=conn_fd)
    stream = conn.makefile("rw", buffering=1)
    for line in stream:
        verb, _, rest = line.rstrip("\n").partition(" ")
        answer = "ok"
        if verb == "name":
            _name = rest
        elif verb == "print":
            print(rest)
        elif verb == "err":
            print(rest, file=sys.stderr)
        elif verb == "write":
            sys.stdout.write(json.loads(rest))
            sys.stdout.flush()
        elif verb == "exit":
            return int(rest)
        elif verb == "raise":
            raise ValueError(rest)
        elif verb == "kill":
            os.kill(os.getpid(), int(rest))
        elif verb == "closestdout":
            sys.stdout.close()
            os.close(1)
        elif verb == "child":
            if os.fork() == 0:
                signal.pause()
        elif verb == "show":
            import __main__

            answer = json.dumps({
                "pid": os.getpid(), "pgid": os.getpgid(0), "random": random.random(), "fds": _fds(), "path": sys.path, "cwd": os.getcwd(), "argv": sys.argv,
                "main": sorted(k for k in vars(__main__) if not k.startswith("__")), "file": getattr(__main__, "__file__", None), "env": dict(os.environ),
                "arena": arena_fd, "sigint": signal.getsignal(signal.SIGINT) is signal.default_int_handler, "modules": sorted(sys.modules),
                "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "comm": open("/proc/self/comm").read().strip(),
            })
        print(answer, file=stream)
    return 0
