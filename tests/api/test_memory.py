"""What is said of objects: `list_objects`, call sites, `memory_summary`, the store's statistics and the warning of a store that stays full."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

import raygo
from raygo import _memory


def run(script: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a driver in a process of its own."""
    return subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **env})


SITES = """
import json, raygo
from raygo.util import state
from raygo._calls import call

@raygo.remote
def task(refs):
    mine = raygo.put(1)
    return [mine, *refs]

@raygo.remote
class Keeper:
    def keep(self, refs):
        self.refs = refs

def put_one():
    return raygo.put("x")

raygo.init(num_cpus=2)
here = put_one()
made = task.remote([here])
keeper = Keeper.remote()
raygo.get(keeper.keep.remote([here]))
inner = raygo.get(made)
rows = call("state.objects", {"limit": 1000, "filters": [], "detail": True})
sites = {}
for row in rows:
    sites.setdefault(row["object_id"], {}).setdefault(row["type"], []).append(row["call_site"])
out = {name: sites[ref.hex()] for name, ref in (("here", here), ("made", made), ("mine", inner[0]))}
out["handles"] = [row["call_site"] for row in rows if row["reference_type"] == "ACTOR_HANDLE"]
out["enabled"] = state.summarize_objects()["cluster"]["callsite_enabled"]
print(json.dumps(out))
"""


def test_call_sites_of_drivers_and_workers():
    done = run(SITES, RAY_record_ref_creation_sites="1")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["enabled"] is True
    assert said["here"]["DRIVER"] == ["(put object) | <string>:put_one:17 | <string>:<module>:20"]
    assert "(deserialize task arg) Keeper.keep" in said["here"]["WORKER"]  # perhaps beside the task's, which lets go a moment after its end
    assert said["made"]["DRIVER"] == ["(task call) | <string>:<module>:21"]
    assert said["mine"]["DRIVER"] == ["(deserialize task arg) | <string>:<module>:24"]  # the driver has it from the value that it got
    assert said["handles"] == ["(actor call) | <string>:<module>:22"]


def test_call_sites_are_off_by_default():
    done = run(SITES, RAY_record_ref_creation_sites="0")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["enabled"] is False and said["handles"] == ["disabled"] and {site for sites in said["here"].values() for site in sites} == {"disabled"}


def test_a_worker_records_what_it_puts():
    done = run(
        """
        import raygo
        from raygo._calls import call

        @raygo.remote
        class Keeper:
            def make(self):
                self.mine = raygo.put("x")

        raygo.init(num_cpus=1)
        keeper = Keeper.remote()
        raygo.get(keeper.make.remote())
        print([row["call_site"] for row in call("state.objects", {"limit": 9, "filters": [["creator", "=", "put in Keeper"]]})])
        """,
        RAY_record_ref_creation_sites="1",
    )
    assert done.stdout == "['(put object) | <string>:make:8']\n", done.stderr


def test_the_warning_reaches_the_drivers_user():
    done = run(
        """
        import sys, threading, numpy, raygo

        raygo.init(num_cpus=1, object_store_memory=20 << 20, _system_config={"store_warn_after_s": 0.05})
        refs = [raygo.put(numpy.ones(1 << 20)) for _ in range(2)]
        values = raygo.get(refs)

        told = threading.Event()
        write = sys.stderr.write

        def watch(text):
            write(text)
            if "more than 80 % full" in text:
                told.set()

        sys.stderr.write = watch
        refs.append(raygo.put(numpy.ones(200_000)))
        values.append(raygo.get(refs[-1]))
        sys.exit(not told.wait(60))
        """,
        RAY_record_ref_creation_sites="1",
    )
    assert done.returncode == 0, done.stderr
    assert "(raygo) WARNING: The object store has been more than 80 % full" in done.stderr
    assert "16.0 MiB in 2 objects: read by the driver" in done.stderr
    assert "(put object) | <string>:<listcomp>:5" in done.stderr.replace("<module>:5", "<listcomp>:5")
    assert "`raygo memory`" in done.stderr


class TestText:
    def row(self, **more):
        row = {"object_id": "ab" * 28, "object_size": 1 << 20, "task_status": "NIL", "reference_type": "LOCAL_REFERENCE", "call_site": "disabled"}
        row |= {"type": "DRIVER", "pid": 7, "ip": "10.0.0.1", "where": "arena", "creator": "driver", "age_s": 1.5}
        return row | more

    def test_an_object_that_two_keep_counts_once(self):
        rows = [self.row(), self.row(pid=8, type="WORKER", reference_type="PINNED_IN_MEMORY"), self.row(object_id="cd" * 28, object_size=-1)]
        assert _memory.totals(rows) == {
            "objects": 2,
            "bytes": 1 << 20,
            "references": {"LOCAL_REFERENCE": {"count": 2, "bytes": 1 << 20}, "PINNED_IN_MEMORY": {"count": 1, "bytes": 1 << 20}},
        }

    def test_the_largest_comes_first_and_an_unknown_reason_has_its_column(self):
        rows = [self.row(object_size=1), self.row(object_id="cd" * 28, object_size=5, reference_type="LINEAGE")]
        text = _memory.references_text(rows, units="B")
        assert text.index("cd" * 28) < text.index("ab" * 28)
        assert "Actor Handles  LINEAGE" in text and "1, (5 B)" in text

    def test_what_is_not_listed_is_said(self):
        found = {"objects": 3, "bytes": 3 << 20, "references": {"LOCAL_REFERENCE": {"count": 3, "bytes": 3 << 20}, "LINEAGE": {"count": 1, "bytes": 5}}}
        text = _memory.cut_text([self.row()], found)
        assert text == "Only the 1 largest of 4 references are listed and summed up above. In all there are 3 objects of 3.0 MiB."
        assert _memory.cut_text([self.row()] * 4, found) == ""

    def test_long_places_take_several_lines(self):
        rows = [self.row(call_site="(put object) | /a/long/path/to/a/file.py:function:10 | /another/long/path/main.py:<module>:3")]
        lines = _memory.references_text(rows).splitlines()
        assert len([line for line in lines if "ab" * 28 in line]) == 1 and any(line.strip().endswith("<module>:3") for line in lines)


def test_memory_summary_is_the_commands_text():
    from raygo._calls import call
    from raygo._private.internal_api import memory_summary, store_stats_summary

    with pytest.raises(RuntimeError, match=r"raygo\.init"):
        memory_summary()
    raygo.init(num_cpus=1, object_store_memory=50 << 20)
    try:
        big = raygo.put(bytes(1 << 20))
        text = memory_summary(units="MB", num_entries=5)
        assert big.hex() in text and "1.000 MB" in text and "LOCAL_REFERENCE" in text
        assert "largest of" not in text
        assert call("objects.totals") == {"objects": 1, "bytes": (1 << 20) + 16, "references": {"LOCAL_REFERENCE": {"count": 1, "bytes": (1 << 20) + 16}}}
        assert big.hex() not in memory_summary(stats_only=True) and "% full" in store_stats_summary()
        with pytest.raises(ValueError, match="group_by is 'COLOUR'"):
            memory_summary(group_by="COLOUR")
    finally:
        raygo.shutdown()


def test_the_stores_statistics():
    from raygo.util.metrics import prometheus_text
    from raygo.util.state import object_store_statistics
    from raygo.util.state.exception import ServerUnavailable

    with pytest.raises(ServerUnavailable):
        object_store_statistics()
    raygo.init(num_cpus=1, object_store_memory=50 << 20)
    try:
        before = object_store_statistics()
        ref = raygo.put(bytes(1 << 20))
        after = object_store_statistics()
        assert before["used"] == before["objects"] == 0 and before["capacity"] == 50 << 20
        assert after["used"] >= 1 << 20 and after["objects"] == after["arena_objects"] == 1 and after["pinned"] == 0
        (line,) = (line for line in prometheus_text().splitlines() if line.startswith("ray_object_store_used_memory "))
        assert float(line.split()[1]) == after["used"]
        del ref
    finally:
        raygo.shutdown()
