"""Storages: checkpoints appear whole or not at all, on disks, object stores and file systems of fsspec."""
import fcntl
import os
import pickle
import subprocess
import sys
import textwrap

import pytest
import s3

from raygo.train import Checkpoint
from raygo.train._files import LOCAL, Files, resolve
from raygo.train._storage import Mirror, StorageContext
from raygo.train.error import StorageError

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def shelf():
    pytest.importorskip("moto")
    with s3.service():
        yield


@pytest.fixture(params=["local", "uri", "s3", "s3 by fsspec", "fsspec"])
def place(request, tmp_path):
    """A storage path and file system."""
    if request.param.startswith("s3"):
        request.getfixturevalue("shelf")
        path = f"shelf/{request.param}/{request.function.__name__}".replace(" ", "-")
        if request.param == "s3":
            return f"s3://{path}", None
        import fsspec

        return path, fsspec.filesystem("s3", key="k", secret="s", endpoint_url=os.environ["AWS_ENDPOINT_URL"], skip_instance_cache=True)
    if request.param == "fsspec":
        from fsspec.implementations.dirfs import DirFileSystem
        from fsspec.implementations.local import LocalFileSystem

        return "inside", DirFileSystem(str(tmp_path), LocalFileSystem())
    return (f"file://{tmp_path}" if request.param == "uri" else str(tmp_path)), None


def context(place):
    storage = StorageContext(place[0], "run", storage_filesystem=place[1], trial_dir_name="trial")
    storage.create()
    return storage


def folder(tmp_path, name, **files):
    made = tmp_path / "sources" / name
    for file, text in files.items():
        (made / file).parent.mkdir(parents=True, exist_ok=True)
        (made / file).write_text(text)
    return str(made)


def content(checkpoint):
    with checkpoint.as_directory() as place:
        return {name: LOCAL.read(os.path.join(place, name)).decode() for name in LOCAL.files(place)}


def test_ranks_make_one_checkpoint(place, tmp_path):
    storage = pickle.loads(pickle.dumps(context(place)))
    one = storage.stage(folder(tmp_path, "one", **{"a": "1", "deep/b": "2"}), 0, 0)
    assert storage.checkpoints() == []
    two = storage.stage(folder(tmp_path, "two", c="3"), 0, 1)
    assert sorted(one + two) == ["a", "c", "deep/b"] and storage.checkpoints() == [] and not storage.is_checkpoint("checkpoint_000000")
    checkpoint = storage.commit(0, "checkpoint_000000", one + two)
    assert storage.checkpoints() == ["checkpoint_000000"]
    assert content(checkpoint) == {"a": "1", "deep/b": "2", "c": "3"}
    assert pickle.loads(pickle.dumps(checkpoint)) == checkpoint
    checkpoint.set_metadata({"k": 1})
    checkpoint.update_metadata({"l": [2]})
    assert checkpoint.get_metadata() == {"k": 1, "l": [2]}
    assert sorted(LOCAL.files(checkpoint.to_directory(tmp_path / "copy"))) == [".metadata.json", "a", "c", "deep/b"]
    storage.delete_checkpoint("checkpoint_000000")
    assert storage.checkpoints() == [] and storage.files.files(storage.trial_fs_path) == {}
    with pytest.raises(FileNotFoundError, match="trial/checkpoint_000000"):
        content(checkpoint)


def test_what_was_left_of_an_upload_does_not_come_into_the_next(place, tmp_path):
    storage = context(place)
    storage.stage(folder(tmp_path, "one", stale="x", same="s", other="old"), 4, 0)
    files = storage.stage(folder(tmp_path, "two", same="s", other="new"), 4, 0)
    assert content(storage.commit(4, "checkpoint_000004", files)) == {"same": "s", "other": "new"}
    storage.stage(folder(tmp_path, "one", stale="x"), 5, 0)
    storage.discard()
    assert storage.checkpoints() == ["checkpoint_000004"]
    assert sorted(storage.files.files(storage.trial_fs_path)) == ["checkpoint_000004/other", "checkpoint_000004/same"]


def test_a_name_that_is_used_again_has_the_newest_files(place, tmp_path):
    storage = context(place)
    for report, text in enumerate(("old", "new")):
        files = storage.stage(folder(tmp_path, text, **{"n": text, text: "x"}), report, 0, name="latest")
        checkpoint = storage.commit(report, "latest", files)
    assert content(checkpoint) == {"n": "new", "new": "x"}
    assert storage.whole_folders()[-1:] == ["latest"] and storage.checkpoints() == []


def test_files_that_were_on_their_way_to_a_whole_checkpoint_do_not_take_it_along(place, tmp_path):
    storage = context(place)
    storage.commit(0, "checkpoint_000000", storage.stage(folder(tmp_path, "one", n="0"), 0, 0))
    storage.stage(folder(tmp_path, "late", late="1"), 0, 1)
    storage.discard(keep={"checkpoint_000000"})
    assert storage.checkpoints() == ["checkpoint_000000"] and content(storage.checkpoint("checkpoint_000000"))["n"] == "0"


def test_late_files_do_not_hide_what_is_whole_without_them(place, tmp_path):
    storage = context(place)
    storage.commit(0, "best", storage.stage(folder(tmp_path, "one", n="0"), 0, 0, name="best"), more=True)
    for rank in (1, 2):
        storage.stage(folder(tmp_path, "late", late="1"), 0, rank, name="best")
    assert storage.whole_folders()[-1:] == ["best"] and storage.is_checkpoint("best")
    assert storage.files.local or content(storage.commit(0, "best")) == {"n": "0", "late": "1"}
    storage.discard()
    assert storage.whole_folders() == ["best"] and content(storage.checkpoint("best"))["n"] == "0"
    storage.commit(1, "best", storage.stage(folder(tmp_path, "two", n="1"), 1, 0, name="best"), more=True)
    assert content(storage.checkpoint("best"))["n"] == "1"
    storage.stage(folder(tmp_path, "three", n="2"), 2, 0, name="best")
    assert storage.is_checkpoint("best") == storage.files.local       # half of the next one
    storage.discard()
    assert storage.is_checkpoint("best") == storage.files.local


def test_what_a_killed_process_had_begun_to_delete(place, tmp_path):
    storage = context(place)
    if storage.files.local:
        os.makedirs(os.path.join(storage.trial_fs_path, ".deleting", "checkpoint_000000", "half"))
    storage.commit(0, "checkpoint_000000", storage.stage(folder(tmp_path, "one", n="0"), 0, 0))
    storage.delete_checkpoint("checkpoint_000000")
    assert storage.checkpoints() == [] and storage.files.files(storage.trial_fs_path) == {}


def test_one_process_numbers_its_own(place, tmp_path):
    storage = context(place)
    made = [storage.persist_current_checkpoint(Checkpoint(folder(tmp_path, str(i), n=str(i)))) for i in range(2)]
    assert [content(c) for c in made] == [{"n": "0"}, {"n": "1"}]
    assert storage.checkpoints() == ["checkpoint_000000", "checkpoint_000001"] and storage.checkpoint_dir_name == "checkpoint_000002"


def test_small_files_and_their_mirror(place):
    storage = context(place)
    files = storage.files
    path = f"{storage.experiment_fs_path}/sub/state.json"
    for text in (b"one", b"two"):
        files.write(path, text)
        assert files.read(path) == text
    assert files.is_file(path) and files.files(f"{storage.experiment_fs_path}/sub") == {"state.json": 3}
    assert files.folders(storage.experiment_fs_path) == [name for name in ("sub", "trial") if name == "sub" or files.is_folder(storage.trial_fs_path)]
    assert files.files(f"{storage.experiment_fs_path}/absent") == {} and files.folders(f"{storage.experiment_fs_path}/absent") == []
    with pytest.raises(FileNotFoundError, match="absent"):
        files.read(f"{storage.experiment_fs_path}/absent")
    mirror = Mirror(files, storage.trial_driver_staging_path, storage.trial_fs_path)
    with open(os.path.join(storage.trial_driver_staging_path, "result.json"), "w") as file:
        file.write("{}\n")
    mirror.touch()
    mirror.close()
    assert files.read(f"{storage.trial_fs_path}/result.json") == b"{}\n"


def test_a_killed_upload_is_no_checkpoint_and_goes_on_where_it_was(shelf, tmp_path):
    """The process is killed while its second file is under way."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "a-first").write_bytes(os.urandom(17 << 20))
    os.mkfifo(source / "z-never-ends")
    script = textwrap.dedent("""
        import sys
        from raygo.train._storage import StorageContext
        StorageContext("s3://shelf/killed", "run", trial_dir_name="trial").stage(sys.argv[1], 0, 0)
    """)
    process = subprocess.Popen([sys.executable, "-c", script, str(source)])
    writer = os.open(source / "z-never-ends", os.O_WRONLY)       # returns when the upload reads from it
    os.write(writer, b"something")
    storage = StorageContext("s3://shelf/killed", "run", trial_dir_name="trial")
    mark = f"{storage.trial_fs_path}/.uploading/checkpoint_000000/0-0.json"
    while b"a-first" not in storage.files.read(mark):
        assert process.poll() is None
    process.kill()
    process.wait()
    os.close(writer)
    assert storage.checkpoints() == [] and "killed/run/trial/checkpoint_000000/a-first" in s3.keys("killed/")
    os.unlink(source / "z-never-ends")
    (source / "z-never-ends").write_text("ends")
    sent = []
    upload = storage.files.upload
    storage.files.upload = lambda source, path, done, have: upload(source, path, lambda *file: (sent.append(file[0]), done(*file)), have)
    files = storage.stage(str(source), 0, 0)
    assert sent == ["z-never-ends"]
    assert (storage.commit(0, "checkpoint_000000", files).to_directory(tmp_path / "back"))
    assert (tmp_path / "back" / "a-first").read_bytes() == (source / "a-first").read_bytes()
    storage.discard()
    assert storage.checkpoints() == ["checkpoint_000000"] and not [key for key in s3.keys("killed/") if ".uploading" in key]


def test_a_download_is_shared_and_removed(shelf, tmp_path):
    storage = StorageContext("s3://shelf/shared", "run", trial_dir_name="trial")
    checkpoint = storage.persist_current_checkpoint(Checkpoint(folder(tmp_path, "x", n="1")))
    with checkpoint.as_directory() as first:
        with Checkpoint("s3://shelf/shared/run/trial/checkpoint_000000").as_directory() as second:
            assert first == second
        assert os.path.isdir(first)
    assert not os.path.exists(first) and not os.path.exists(f"{first}.lock")


@pytest.mark.parametrize("turn", range(4))
def test_another_comes_and_goes_while_a_download_is_locked(monkeypatch, turn):
    class Quick(Files):
        name = "quick"

        def download(self, path, target):
            os.makedirs(target)
            with open(os.path.join(target, "n"), "w") as file:
                file.write("1")

    def read():
        with Checkpoint._on(Quick(), f"shelf/{turn}").as_directory() as place, open(os.path.join(place, "n")) as file:
            assert file.read() == "1"

    def letting_in(lock, how):
        turns.append(how)
        if len(turns) == turn + 1:        # where the lock is not held, or let go for a moment as it becomes another
            lock_by(lock, fcntl.LOCK_UN)
            monkeypatch.setattr(fcntl, "flock", lock_by)
            read()
            monkeypatch.setattr(fcntl, "flock", letting_in)
        lock_by(lock, how)

    turns, lock_by = [], fcntl.flock
    monkeypatch.setattr(fcntl, "flock", letting_in)
    read()
    assert len(turns) > turn


def test_downloads_from_two_services_are_not_mixed_up(shelf, tmp_path):
    import pyarrow.fs

    def there(url):
        filesystem = pyarrow.fs.S3FileSystem(endpoint_override=url, region="us-east-1", access_key="k", secret_key="s")
        return StorageContext("shelf/two", "run", storage_filesystem=filesystem, trial_dir_name="trial")

    one = there(os.environ["AWS_ENDPOINT_URL"]).persist_current_checkpoint(Checkpoint(folder(tmp_path, "one", n="1")))
    with s3.service() as other:
        two = there(other["AWS_ENDPOINT_URL"]).persist_current_checkpoint(Checkpoint(folder(tmp_path, "two", n="2")))
        assert one.path == two.path and one != two
        with one.as_directory():
            assert content(two) == {"n": "2"} and content(pickle.loads(pickle.dumps(one))) == {"n": "1"}


def test_errors_name_file_and_storage(shelf, tmp_path):
    with pytest.raises(StorageError, match=r"s3.*no-such-bucket-here/x"):
        StorageContext("s3://no-such-bucket-here/x", "run", trial_dir_name="trial").create()
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"local.*file/run"):
        StorageContext(str(tmp_path / "file"), "run", trial_dir_name="trial").create()
    with pytest.raises(ValueError, match="nowhere://"):
        resolve("nowhere://x")


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="needs a small file system of its own")
def test_a_full_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("no permission to mount")
    try:
        storage = StorageContext(str(disk), "run", trial_dir_name="trial")
        storage.create()
        good = storage.persist_current_checkpoint(Checkpoint(folder(tmp_path, "good", n="1")))
        with pytest.raises(StorageError, match=r"local: No space left on device.*big"):
            storage.persist_current_checkpoint(Checkpoint(folder(tmp_path, "bad", big="x" * (2 << 20))))
        assert storage.checkpoints() == ["checkpoint_000000"] and content(good) == {"n": "1"}
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_mirror_says_what_a_service_refused_and_tries_once_more(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    from fsspec.implementations.dirfs import DirFileSystem

    class Moody(fsspec.implementations.local.LocalFileSystem):
        failures = 0

        def open(self, path, mode="rb", **kwargs):
            if "w" in mode and self.failures:
                self.failures -= 1
                raise RuntimeError("slow down")
            return super().open(path, mode, **kwargs)

    service = Moody(skip_instance_cache=True)
    here = tmp_path / "here"
    here.mkdir()
    (here / "state").write_text("1")
    for failures, wanted in ((1, True), (2, False)):
        files, path = resolve(f"there{failures}", DirFileSystem(str(tmp_path), service))
        service.failures = failures
        mirror = Mirror(files, str(here), path)
        mirror.touch()
        mirror._thread.join(0.5)          # it goes on, or has failed
        if wanted:
            mirror.close()
            assert (tmp_path / path / "state").read_text() == "1"
        else:
            with pytest.raises(StorageError, match="RuntimeError: slow down"):
                mirror.close()
