"""Compiled programs on disk, as JAX and the command use them: which are read, where they are kept."""

import errno
import json
import os
import stat
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path

import jax
import numpy as np
import pytest
from jax._src import compilation_cache as place
from jax._src import monitoring
from jax._src.compilation_cache_interface import CacheInterface

from qpde import cache_compilations
from qpde._files import cache, private
from qpde._files.programs import ProgramStore
from qpde.cli.main import main

SETTINGS = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


@pytest.fixture(autouse=True)
def _suite_keeps_its_own(monkeypatch, tmp_path):
    """Each test has folders of its own, and leaves the suite's cache as it was."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("QPDE_CACHE")
    before = place._cache, place._cache_initialized
    settings = {name: getattr(jax.config, name) for name in SETTINGS}
    yield
    place.reset_cache()
    place._cache, place._cache_initialized = before
    for name, value in settings.items():
        jax.config.update(name, value)


@pytest.fixture
def events():
    """JAX's own count of programs that were read ("hits") and written ("misses")."""
    count = Counter()

    def listen(event, **_):
        count[event.removeprefix("/jax/compilation_cache/cache_")] += 1

    monitoring.register_event_listener(listen)
    yield count
    monitoring.unregister_event_listener(listen)


def add(number):
    """A new jitted function, so that JAX must ask for its program; the value is of `x + number`."""
    jax.clear_caches()
    return float(jax.jit(lambda x: x + number)(np.float32(1.0)))


def entries(folder):
    return sorted(path for path in Path(folder).glob("programs-*/*") if path.is_file())


PROCESS = """
import glob, json, sys, time
import jax, numpy as np
from jax._src import compilation_cache, monitoring
import qpde
assert compilation_cache._cache is None  # the library keeps nothing unless it is told to
count = {"hits": 0, "misses": 0}
def listen(event, **_):
    name = event.removeprefix("/jax/compilation_cache/cache_")
    count[name] = count.get(name, 0) + 1
monitoring.register_event_listener(listen)
folder, barrier = sys.argv[1], sys.argv[2]
open(barrier + str(time.time_ns()), "w").close()
deadline = time.monotonic() + 120
while barrier.endswith("pair") and len(glob.glob(barrier + "*")) < 2:
    assert time.monotonic() < deadline, "the other process did not start"
    time.sleep(0.01)
qpde.cache_compilations(folder)
values = [float(jax.jit(lambda x, i=i: x * i)(np.float32(2.0))) for i in range(8)]
print(json.dumps({"hits": count["hits"], "misses": count["misses"], "values": values}))
"""


def test_two_processes_at_once_then_a_third_that_compiles_nothing(tmp_path):
    """The two also make the key at once; the third could not read the programs of a second key."""

    def start(barrier):
        words = [sys.executable, "-W", "error", "-c", PROCESS, tmp_path / "programs", barrier]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(process):
        out, err = process.communicate(timeout=300)
        assert (process.returncode, err) == (0, "")
        return json.loads(out)

    values = [2.0 * i for i in range(8)]
    pair = [start(tmp_path / "pair") for _ in range(2)]
    for result in map(end, pair):
        assert result["values"] == values
        assert result["hits"] + result["misses"] == 8
    assert len(entries(tmp_path / "programs")) == 8  # no drafts, nothing twice
    assert end(start(tmp_path / "third")) == {"hits": 8, "misses": 0, "values": values}


def test_a_program_is_read_again(events, tmp_path):
    cache_compilations(tmp_path / "programs")
    assert add(10) == add(10) == 11.0
    assert (events["misses"], events["hits"]) == (1, 1)


@pytest.mark.parametrize("damage", ["signature", "time", "middle", "last", "cut", "empty"])
def test_a_damaged_program_is_compiled_again(damage, events, tmp_path):
    cache_compilations(tmp_path)
    assert add(20) == 21.0
    (file,) = entries(tmp_path)
    whole = bytearray(file.read_bytes())
    if damage in ("cut", "empty"):
        content = bytes(whole[: len(whole) // 2 if damage == "cut" else 0])
    else:
        at = {"signature": 3, "time": 33, "middle": len(whole) // 2, "last": len(whole) - 1}[damage]
        whole[at] ^= 0x10
        content = bytes(whole)
    file.write_bytes(content)
    with pytest.warns(UserWarning, match="compiled again"):
        assert add(20) == 21.0
    assert (events["misses"], events["hits"]) == (2, 0)
    assert add(20) == 21.0  # the new program took the place of the damaged one
    assert (events["misses"], events["hits"]) == (2, 1)


def test_a_program_under_the_name_of_another_is_not_used(events, tmp_path):
    """Without a signature that covers the name the second function would return the value of the first."""
    cache_compilations(tmp_path)
    assert add(30) == 31.0
    (first,) = entries(tmp_path)
    assert add(31) == 32.0
    (second,) = set(entries(tmp_path)) - {first}
    first.replace(second)
    with pytest.warns(UserWarning, match="compiled again"):
        assert add(31) == 32.0
    assert (events["misses"], events["hits"]) == (3, 0)


@pytest.mark.parametrize(
    ("holder", "name", "value"),
    [
        (jax, "__version__", "0.10.3"),
        (cache, "JAXLIB_VERSION", "0.10.3"),
        (sys, "version_info", (3, 99, 0)),
        (cache.platform, "machine", lambda: "another"),
        (cache, "FORMAT", 99),
        (cache, "_source", lambda package: "edited"),
    ],
)
def test_another_version_reads_nothing(holder, name, value, events, monkeypatch, tmp_path):
    cache_compilations(tmp_path)
    assert add(40) == 41.0
    with monkeypatch.context() as change:
        change.setattr(holder, name, value)
        cache_compilations(tmp_path)
    assert add(40) == 41.0
    assert (events["misses"], events["hits"]) == (2, 0)
    assert len(list(tmp_path.glob("programs-*"))) == 2
    cache_compilations(tmp_path)
    assert add(40) == 41.0
    assert (events["misses"], events["hits"]) == (2, 1)


def test_another_key_reads_nothing_and_calls_nothing_damaged(events, tmp_path):
    cache_compilations(tmp_path / "programs")
    assert add(45) == 46.0
    (tmp_path / "state" / "qpde" / "cache.key").unlink()
    cache_compilations(tmp_path / "programs")
    assert add(45) == 46.0  # and no warning, which would be an error here
    assert (events["misses"], events["hits"]) == (2, 0)


def test_source_of_the_same_size_and_time_is_another_source(tmp_path):
    (tmp_path / "room").mkdir()
    file = tmp_path / "room" / "a.py"
    file.write_text("one = 1\n")
    before, times = cache._source(tmp_path), file.stat()
    assert cache._source(tmp_path) == before
    file.write_text("one = 2\n")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    after = cache._source(tmp_path)
    assert after != before
    file.rename(tmp_path / "room" / "b.py")
    assert cache._source(tmp_path) not in (before, after)
    assert cache._source(cache.PACKAGE) != cache._source(cache.PACKAGE / "zoo")


def test_machines_differ_by_processor_not_by_clock(tmp_path):
    file = tmp_path / "cpuinfo"

    def machine(flags, clock):
        core = f"model name\t: A\ncpu MHz\t\t: {clock}\nflags\t\t: {flags}\n\n"
        file.write_text(core + core.replace("A", "second core"))
        return cache._machine(file)

    assert machine("avx2", 1000) == machine("avx2", 2000)
    assert machine("avx2", 1000) != machine("avx2 avx512f", 1000)
    assert machine("avx2", 1000)[-2:] == ["model name: A", "flags: avx2"]


def test_a_limit_must_be_positive(tmp_path):
    with pytest.raises(ValueError, match="positive number of bytes, got 0"):
        cache_compilations(tmp_path, limit=0)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_key_and_entries_are_private(tmp_path):
    cache_compilations()
    assert add(50) == 51.0
    (entry,) = entries(tmp_path / "cache" / "qpde")
    key = tmp_path / "state" / "qpde" / "cache.key"
    for folder in (tmp_path / "cache" / "qpde", entry.parent, key.parent):
        assert mode(folder) == 0o700
    assert (mode(entry), mode(key)) == (0o600, 0o600)
    assert len(key.read_bytes()) == 32
    assert list(key.parent.iterdir()) == [key]


@pytest.mark.parametrize("bits", [0o777, 0o770, 0o702])
@pytest.mark.parametrize("linked", [False, True])
def test_a_folder_that_others_can_write_to_is_refused(bits, linked, tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(bits)
    before = place._cache
    path = tmp_path / "link" if linked else folder
    if linked:
        path.symlink_to(folder)
    with pytest.raises(OSError, match=rf"open to other users \(mode {bits:04o}\); chmod go-w"):
        cache_compilations(path)
    assert place._cache is before
    folder.chmod(0o755)  # others may look; the subfolder is closed to them
    cache_compilations(path)
    assert add(51) == 52.0
    assert mode(entries(folder)[0].parent) == 0o700


def test_a_folder_of_another_user_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(OSError, match="belongs to another user"):
        cache_compilations(tmp_path)


def test_a_key_that_others_can_read_or_that_is_damaged_is_refused(tmp_path):
    cache_compilations(tmp_path / "programs")
    key = tmp_path / "state" / "qpde" / "cache.key"
    key.chmod(0o640)
    with pytest.raises(OSError, match="open to other users .mode 0640.; chmod 600"):
        cache_compilations(tmp_path / "programs")
    key.chmod(0o600)
    key.write_bytes(b"short")
    with pytest.raises(OSError, match="is damaged: 5 bytes in place of 32. Delete it."):
        cache_compilations(tmp_path / "programs")


def test_a_path_that_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    for path, why in (("file", "File exists"), ("file/below", "Not a directory")):
        with pytest.raises(OSError, match=f"Cannot write to .*{path}: {why}."):
            cache_compilations(tmp_path / path)


@pytest.mark.parametrize(
    ("platform", "environment", "cache_folder", "state_folder"),
    [
        ("linux", {}, "/home/u/.cache/qpde", "/home/u/.local/state/qpde"),
        ("linux", {"XDG_CACHE_HOME": "/c"}, "/c/qpde", "/home/u/.local/state/qpde"),
        (
            "linux",
            {"XDG_STATE_HOME": "relative"},
            "/home/u/.cache/qpde",
            "/home/u/.local/state/qpde",
        ),
        ("darwin", {}, "/home/u/Library/Caches/qpde", "/home/u/Library/Application Support/qpde"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/qpde", "/local/qpde"),
    ],
)
def test_the_users_folders(platform, environment, cache_folder, state_folder, monkeypatch):
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"HOME": "/home/u"} | environment).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(private.sys, "platform", platform)
    assert private.cache_folder() == Path(cache_folder)
    assert private.state_folder() == Path(state_folder)


def test_a_full_disk_costs_one_warning(monkeypatch, tmp_path):
    cache_compilations(tmp_path)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(
        UserWarning, match="No space left on device. Compiled programs are not kept."
    ) as all_:
        values = [add(60), add(61), add(62)]
    assert values == [61.0, 62.0, 63.0]
    assert len(all_) == 1
    assert entries(tmp_path) == []  # the drafts are gone too


def test_a_folder_that_is_deleted_meanwhile_is_made_again(events, tmp_path):
    cache_compilations(tmp_path / "programs")
    assert add(65) == 66.0
    (file,) = entries(tmp_path / "programs")
    file.unlink()
    file.parent.rmdir()
    file.parent.parent.rmdir()
    assert add(65) == add(65) == 66.0
    assert (events["misses"], events["hits"]) == (2, 1)


def test_jax_has_the_place_that_we_use(tmp_path):
    """If this fails after an upgrade of JAX, commands compile everything anew: find the new place."""
    cache_compilations(tmp_path / "programs")
    assert isinstance(place._cache, ProgramStore)
    assert place._get_cache(jax.devices()[0].client) is place._cache
    assert CacheInterface.__abstractmethods__ == {"get", "put"}


@pytest.mark.parametrize("name", ["_cache", "_cache_initialized", "_get_cache", "reset_cache"])
def test_a_jax_without_the_place_has_no_cache(name, monkeypatch, tmp_path):
    before = place._cache
    with monkeypatch.context() as change:
        change.delattr(place, name)
        with pytest.raises(RuntimeError, match="takes no cache that checks its entries"):
            cache_compilations(tmp_path)
    assert place._cache is before


def test_jax_never_falls_back_to_entries_without_a_check(tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "unchecked"))
    cache_compilations(tmp_path / "checked")
    assert add(70) == 71.0
    place.reset_cache()
    assert add(71) == 72.0
    assert not (tmp_path / "unchecked").exists()
    assert len(entries(tmp_path / "checked")) == 1


def command(monkeypatch, capsys, *words):
    """Run `main` in this process with its warnings shown: exit code, standard error."""
    monkeypatch.setattr(sys, "argv", ["qpde", *words])
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        with pytest.raises(SystemExit) as end:
            main()
    return end.value.code or 0, capsys.readouterr().err


def test_the_command_keeps_programs_in_the_users_folder(monkeypatch, capsys, tmp_path):
    assert command(monkeypatch, capsys, "zoo") == (0, "")
    assert isinstance(place._cache, ProgramStore)
    assert place._cache._path.parent == tmp_path / "cache" / "qpde"
    monkeypatch.setenv("QPDE_CACHE", str(tmp_path / "chosen"))
    assert command(monkeypatch, capsys, "zoo") == (0, "")
    assert place._cache._path.parent == tmp_path / "chosen"


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("off", ["zoo"]),
        ("OFF", ["zoo"]),
        ("", ["--no-cache", "zoo"]),
        ("", ["bench", "speed", "--help"]),
    ],
)
def test_the_command_without_a_cache(variable, words, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("QPDE_CACHE", variable)
    before = place._cache
    assert command(monkeypatch, capsys, *words) == (0, "")
    assert place._cache is before
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_will_not_do_costs_the_command_one_sentence(monkeypatch, capsys, tmp_path):
    before = place._cache
    (tmp_path / "file").write_text("")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    refusals = {
        "file": f"qpde: Cannot write to {tmp_path}/file: File exists. Compiled programs are not kept.\n",
        "open": f"qpde: {tmp_path}/open is open to other users (mode 0777); chmod go-w. "
        "Compiled programs are not kept.\n",
    }
    for name, sentence in refusals.items():
        monkeypatch.setenv("QPDE_CACHE", str(tmp_path / name))
        assert command(monkeypatch, capsys, "zoo") == (0, sentence)
    assert place._cache is before


def test_a_jax_without_the_place_costs_the_command_one_sentence(monkeypatch, capsys):
    monkeypatch.delattr(place, "_get_cache")
    code, err = command(monkeypatch, capsys, "zoo")
    assert (code, err.count("\n")) == (0, 1)
    assert "takes no cache that checks its entries. Compiled programs are not kept." in err
