"""Readers, writers, actors and generators on a small store, whose processes are killed at random; nothing may be lost, and nothing may stay.

    python tests/soak/soak.py --seconds 600 --seed 1 --drivers 2

The first driver holds the engine. With --drivers 2 a second one joins its session, is killed with SIGKILL at random moments and starts
again. With --kill-first the first one is killed in the end, and all that belonged to its session has to go by itself. The seed fixes what is
done and when somebody is killed, not how the machine schedules it: a fault may take a few runs to come back.
"""
import argparse
import ctypes
import faulthandler
import gc
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MB = 2**20


def stat_of(pid):
    """State and parent of a process; None when there is none."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            state, parent = f.read().rsplit(")", 1)[1].split()[:2]
        return state, int(parent)
    except (OSError, ValueError):
        return None


# ---- a driver


def drive(world, name, seed):
    import load

    rng = random.Random(f"{seed}/{name}")
    while time.monotonic() < world.until and not world.errors:
        world.since[name] = time.monotonic()
        activity = rng.choice(load.ACTIVITIES if world.pooled > world.budget // 2 else [load.put_some, load.make_some])
        try:
            activity(world, rng)
            world.count(activity.__name__)
        except Exception as error:
            import traceback

            world.errors.append(f"{name}, {activity.__name__}: {type(error).__name__}: {error}\n{traceback.format_exc()}")
    del world.since[name]


def kill_some(world, seed, stop):
    """Kills and stops workers, and now and then the process they are forked from."""
    from raygo.util.state import list_workers

    rng = random.Random(f"{seed}/killer")
    pace, until = 0.1, 0.0
    while not stop.wait(rng.expovariate(1 / pace)):
        if time.monotonic() > until:   # storms, and times in which something gets done
            pace, until = rng.choice([0.05, 0.2, 1]), time.monotonic() + 5
        if time.monotonic() - min(list(world.since.values()), default=0) > 10:
            continue   # on a slow machine nothing would ever end
        workers = sorted(w.pid for w in list_workers(limit=1000) if w.worker_type == "WORKER" and w.pid)
        if not workers:
            continue
        pid, fate = rng.choice(workers), rng.random()
        try:
            if fate < 0.75:
                os.kill(pid, signal.SIGKILL)
                world.count("workers killed")
            elif fate < 0.95:
                os.kill(pid, signal.SIGSTOP)
                stop.wait(rng.random() * 0.3)
                os.kill(pid, signal.SIGCONT)
                world.count("workers stopped for a while")
            else:
                found = stat_of(pid)
                if found and stat_of(found[1]) and stat_of(found[1])[1] == os.getpid():   # else its template died before it
                    os.kill(found[1], signal.SIGKILL)
                    world.count("templates killed")
        except ProcessLookupError:
            pass   # it ended by itself


def threads_of_load(world, seed, count):
    threads = [threading.Thread(target=drive, args=(world, f"thread {i}", seed), daemon=True) for i in range(count)]
    for t in threads:
        t.start()
    return threads


def nothing_is_left():
    """What the engine still keeps, as text; empty when there is nothing."""
    import raygo
    from raygo._calls import call

    zero = ("objects", "arena_objects", "used", "pinned", "spilled", "waiting", "waiting_bytes", "inline_bytes", "chunks")
    left = {k: v for k, v in call("store.stats").items() if k in zero and v}
    node = call("node.stats")
    left |= {k: node[k] for k in ("queued", "units") if node[k]}
    total, free = raygo.cluster_resources(), raygo.available_resources()
    return left | {k: f"{free.get(k, 0)} of {v} free" for k, v in total.items() if free.get(k, 0) != v}


def descriptors():
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}")
        except FileNotFoundError:
            pass   # it was the listing's own
    return found


def first_driver(args):
    import load

    import raygo
    from raygo._calls import call

    raygo.init(num_cpus=1, include_dashboard=False)   # what the libraries keep open for good is open after that
    raygo.shutdown()
    before = descriptors()
    raygo.init(num_cpus=4, include_dashboard=False, object_store_memory=64 * MB, log_to_driver=False,
               _temp_dir=f"{args.folder}/session", _object_spilling_directory=[f"{args.folder}/spill{i}" for i in range(2)])
    print(json.dumps({"address": raygo.get_runtime_context().gcs_address}), flush=True)
    world = load.World(budget=20 * MB, until=time.monotonic() + args.seconds)   # 160 MB, much of it on disk
    stop = threading.Event()
    killer = threading.Thread(target=kill_some, args=(world, args.seed, stop), daemon=True)
    killer.start()
    threads = threads_of_load(world, args.seed, 4)
    for t in threads:
        t.join(args.seconds + 2 * load.PATIENCE)
    stop.set()
    killer.join(30)
    hang = [t.name for t in threads if t.is_alive()]
    if hang:
        faulthandler.dump_traceback(all_threads=True)
        world.errors.append(f"{hang} hang; explain their waits with the stacks above")
    for ref, _ in world.pool:   # every value that was to survive has
        try:
            load.get(world, [ref])
        except Exception as error:
            world.errors.append(f"a value of the pool, {ref}: {type(error).__name__}: {error}")
        del ref
    store = call("store.stats")
    world.counts.update((k, store[k]) for k in ("spilled_total", "restored_total", "high_water"))
    world.pool.clear()
    gc.collect()
    end = time.monotonic() + 60
    while (left := nothing_is_left()) and time.monotonic() < end and not hang:
        time.sleep(0.1)   # the other drivers, and processes that die, end in their own time
    if left:
        from raygo.util.state import list_objects, list_tasks

        world.errors.append(f"the engine still keeps {left}\nobjects: {list_objects(limit=20, detail=True)}\n"
                            f"tasks: {list_tasks(limit=20, detail=True, filters=[('state', '!=', 'FINISHED'), ('state', '!=', 'FAILED')])}")
    raygo.shutdown()
    if more := descriptors() - before:
        world.errors.append(f"descriptors stay open: {more}")
    print(json.dumps({"counts": world.counts, "errors": world.errors}), flush=True)


def other_driver(args):
    """The same load without a killer; it goes on until it is killed, or its session ends."""
    import load

    import raygo

    raygo.init(address=args.join, log_to_driver=False)
    world = load.World(budget=4 * MB, until=time.monotonic() + args.seconds)
    for t in threads_of_load(world, args.seed, 2):
        t.join()
    print(json.dumps({"counts": world.counts, "errors": world.errors}), flush=True)


# ---- the one who watches


def descendants(pid):
    found, todo = [], [pid]
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (s := stat_of(int(name))) and s[0] not in "ZX":
            parents.setdefault(s[1], []).append(int(name))
    while todo:
        todo += (children := parents.get(todo.pop(), []))
        found += children
    return found


def command_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as f:
            return f"{pid} {f.read().replace(chr(0), ' ')[:200]}"
    except OSError:
        return f"{pid} (just ended)"


def start(folder, *extra):
    command = [sys.executable, "-X", "faulthandler", os.path.abspath(__file__), *map(str, extra), "--folder", folder]
    path = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path})


def what_is_left(folder, shm):
    """Processes and files that stay when all drivers have ended."""
    end = time.monotonic() + 20
    while (alive := descendants(os.getpid())) and time.monotonic() < end:
        time.sleep(0.05)
    left = [f"process {command_of(pid)}" for pid in alive]
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    left += [f"/dev/shm/{name}" for name in set(os.listdir("/dev/shm")) - shm]
    for i in range(2):
        if os.path.isdir(f"{folder}/spill{i}"):
            left += [f"{folder}/spill{i}/{name}" for name in os.listdir(f"{folder}/spill{i}")]
    return left


def run(args):
    """Returns (counts, errors)."""
    ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)   # PR_SET_CHILD_SUBREAPER: orphans become children of this process
    shm = set(os.listdir("/dev/shm"))
    rng = random.Random(f"{args.seed}/drivers")
    counts, errors = {}, []

    with tempfile.TemporaryDirectory(prefix="raygo-soak-") as folder:
        first = start(folder, "--role", "first", "--seconds", args.seconds, "--seed", args.seed)
        said = []
        begun = threading.Event()

        def read():
            for line in first.stdout:
                said.append(line)
                begun.set()
            begun.set()

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        begun.wait(60)
        end = time.monotonic() + args.seconds
        if args.kill_first:
            end -= rng.random() * args.seconds / 2
        generation = 0
        while args.drivers > 1 and said and time.monotonic() < end - 3 and first.poll() is None:
            generation += 1
            other = start(folder, "--role", "other", "--join", json.loads(said[0])["address"], "--seconds", args.seconds, "--seed", f"{args.seed}.{generation}")
            try:
                other.wait(0.5 + min(rng.random() * 8, max(end - time.monotonic() - 1, 0)))
                errors.append(f"a driver that was to be killed ended by itself: {other.communicate()[0][-4000:]}")
                break
            except subprocess.TimeoutExpired:
                other.kill()
                other.communicate()
                counts["drivers killed"] = generation
        if args.kill_first:
            time.sleep(max(end - time.monotonic(), 0))
            first.kill()
        try:
            first.wait(max(end - time.monotonic(), 0) + 400)
        except subprocess.TimeoutExpired:
            first.send_signal(signal.SIGABRT)   # faulthandler prints the stacks
            errors.append("the first driver hangs")
        first.wait()
        reader.join()
        if args.kill_first and first.returncode == -signal.SIGKILL:
            counts["sessions killed"] = 1
        elif first.returncode or len(said) < 2:
            errors.append(f"the first driver ended with {first.returncode}; it said {said[-1:]}")
        else:
            last = json.loads(said[-1])
            counts |= last["counts"]
            errors += last["errors"]
        if left := what_is_left(folder, shm):
            errors.append(f"left behind: {left}")
    return counts, errors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", default=str(random.SystemRandom().randrange(10**6)))
    parser.add_argument("--drivers", type=int, default=1, choices=[1, 2])
    parser.add_argument("--kill-first", action="store_true")
    for internal in ("--role", "--join", "--folder"):
        parser.add_argument(internal, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role:
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        first_driver(args) if args.role == "first" else other_driver(args)
        return
    begin = time.monotonic()
    counts, errors = run(args)
    print(f"seed {args.seed}, {args.drivers} driver(s), {time.monotonic() - begin:.0f} s:")
    print(json.dumps(counts, indent=1, sort_keys=True))
    for error in errors:
        print(f"FAULT: {error}", file=sys.stderr)
    if errors:
        again = f"--seconds {args.seconds:g} --seed {args.seed} --drivers {args.drivers}{' --kill-first' * args.kill_first}"
        sys.exit(f"seed {args.seed} failed; repeat it with: {sys.executable} {os.path.abspath(__file__)} {again}")


if __name__ == "__main__":
    main()
