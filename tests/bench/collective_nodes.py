"""allreduce between two nodes: raygo against gloo, in one run, over the same link.

    python tests/bench/collective_nodes.py [--sizes 4096,1048576,104857600] [--nodes 2] [--rounds 5]

The nodes are network namespaces that a bridge joins, which needs root; without it they are processes on loopback. The two take turns, and
what counts is the median of the ratios of neighbours: the machine may have other work.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "net"))
from netranks import Ranks, namespaces

CODE = """
import datetime
import statistics
import torch
import torch.distributed as dist

torch.set_num_threads(1)
device = os.environ.get("BENCH_INTERFACE")
if device:
    os.environ["GLOO_SOCKET_IFNAME"] = device
dist.init_process_group("gloo", init_method=f"file://{FOLDER}/gloo", rank=RANK, world_size=SIZE, timeout=datetime.timedelta(seconds=300))
group = open_group(timeout=300.0)
for size in SIZES:
    tensor = torch.ones(size // 4)
    p, n = tensor.data_ptr(), tensor.numel()

    def ours():
        group.allreduce(p, p, n, DTYPES["float32"], OPS["max"])

    def gloo():
        dist.all_reduce(tensor, dist.ReduceOp.MAX)

    repeat = max(1, min(200, (4 << 20) // size))

    def timed(f):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(repeat):
            f()
        return (time.perf_counter() - start) / repeat

    timed(ours), timed(gloo)
    pairs = [(timed(gloo), timed(ours)) for _ in range(ROUNDS)]
    if RANK == 0:
        print(json.dumps({"bytes": size, "gloo_ms": statistics.median(a for a, _ in pairs) * 1e3, "raygo_ms": statistics.median(b for _, b in pairs) * 1e3,
                          "ratio": statistics.median(a / b for a, b in pairs)}), flush=True)
group.close()
dist.destroy_process_group()
"""


def main() -> None:
    """Run it and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="4096,65536,1048576,26214400,104857600")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=1, help="per node")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    layout = [chr(ord("a") + i) for i in range(options.nodes) for _ in range(options.ranks)]
    with contextlib.ExitStack() as stack:
        try:
            spaces = stack.enter_context(namespaces(sorted(set(layout))))
            env = {"BENCH_INTERFACE": "eth0"}
        except PermissionError as refusal:
            print(f"on loopback: {refusal}")
            spaces, env = None, {}
        ranks = Ranks(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        stack.callback(ranks.close)
        ranks.start(layout, f"SIZES, ROUNDS = [{options.sizes}], {options.rounds}\n" + CODE, spaces, **env)
        print(f"{'bytes':>12} {'gloo ms':>10} {'raygo ms':>10} {'times':>6}")
        for line in ranks.check(timeout=1200)[0].splitlines():
            if line.startswith("{"):
                r = json.loads(line)
                print(f"{r['bytes']:>12} {r['gloo_ms']:>10.3f} {r['raygo_ms']:>10.3f} {r['ratio']:>6.2f}")


if __name__ == "__main__":
    main()
