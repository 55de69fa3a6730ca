"""The store of programs: right bytes or none, and a bounded size."""

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from qpde._files.programs import ProgramStore

SECRET = bytes(range(32))


def entries(folder):
    return sorted(path for path in Path(folder).glob("programs-*/*") if path.is_file())


def size(folder):
    return sum(path.stat().st_size for path in entries(folder))


def age(path, seconds):
    then = time.time_ns() - round(seconds * 1e9)
    os.utime(path, ns=(then, then))


def test_any_changed_byte_any_cut_and_any_addition_is_noticed(tmp_path):
    ProgramStore(tmp_path, "b", SECRET, 10_000).put("key", b"a program of 24 bytes...")
    (file,) = entries(tmp_path)
    whole = file.read_bytes()
    assert len(whole) == 32 + 24

    def read(content):
        file.write_bytes(content)
        return ProgramStore(tmp_path, "b", SECRET, 10_000).get("key")

    assert read(whole) == b"a program of 24 bytes..."
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1
        for content in (bytes(changed), whole[:at]):
            with pytest.warns(UserWarning, match="was changed after it was written"):
                assert read(content) is None
    with pytest.warns(UserWarning, match="was changed after it was written"):
        assert read(whole + b"!") is None


def test_a_program_of_another_user_or_build_is_not_used(tmp_path):
    """Copied to the right place, it still has the wrong signature."""
    ProgramStore(tmp_path, "mine", SECRET, 10_000).put("key", b"right")
    (mine,) = entries(tmp_path)
    for build, secret in (("mine", bytes(32)), ("other", SECRET)):
        ProgramStore(tmp_path / build, build, secret, 10_000).put("key", b"wrong")
        (foreign,) = entries(tmp_path / build)
        mine.write_bytes(foreign.read_bytes())
        with pytest.warns(UserWarning, match="compiled again"):
            assert ProgramStore(tmp_path, "mine", SECRET, 10_000).get("key") is None


def test_the_least_recently_used_programs_go(tmp_path):
    """Room for ten entries of 100 bytes. An overflow empties an eighth beside the new one: here three go."""
    store = ProgramStore(tmp_path, "b", SECRET, 1_000)
    for i in range(10):
        store.put(str(i), bytes(68))
        age(store._file(str(i)), 100 - i)
    assert size(tmp_path) == 1_000
    assert store.get("0") == bytes(68)  # now the youngest
    store.put("new", bytes(68))
    left = {name for name in (*map(str, range(10)), "new") if store.get(name) is not None}
    assert left == {"0", "4", "5", "6", "7", "8", "9", "new"}
    assert size(tmp_path) == 800


def test_the_bound_holds_after_every_write(tmp_path):
    rng = np.random.default_rng(0)
    store = ProgramStore(tmp_path, "b", SECRET, 5_000)
    for i, length in enumerate(rng.integers(1, 2_000, 200)):
        store.put(str(i), bytes(int(length)))
        assert size(tmp_path) <= 5_000
        assert store.get(str(i)) == bytes(int(length))
    store.put("large", bytes(5_000 - 31))
    assert store.get("large") is None
    store.put("exact", bytes(5_000 - 32))
    assert store.get("exact") == bytes(5_000 - 32)
    assert size(tmp_path) == 5_000


def test_other_builds_count_and_go_first_when_they_are_older(tmp_path):
    old, new = (ProgramStore(tmp_path, build, SECRET, 1_000) for build in ("old", "new"))
    for i in range(5):
        old.put(str(i), bytes(68))
        age(old._file(str(i)), 1_000)
    draft = old._path / "tmpdraft"  # of a process that was killed
    draft.write_bytes(bytes(100))
    age(draft, 1_000)
    (tmp_path / "mine.txt").write_text("the user's")
    for i in range(10):
        new.put(str(i), bytes(68))
    assert size(tmp_path) <= 1_000
    assert not old._path.exists()
    assert (tmp_path / "mine.txt").read_text() == "the user's"


def test_other_builds_go_after_a_month(tmp_path):
    for days, left in ((31, 0), (29, 1)):
        old, new = (ProgramStore(tmp_path, f"{b}{days}", SECRET, 10_000) for b in ("old", "new"))
        for store in (old, new):
            store.put("key", b"program")
            age(store._file("key"), days * 86400)
        new._room = 0  # as in the next process
        new.put("another", b"program")
        assert len(entries(tmp_path)) == 2 + left, days
        assert new.get("key") == b"program"  # a build in use keeps its programs
        for file in entries(tmp_path):
            file.unlink()


def test_stores_that_evict_each_other_return_right_bytes_or_none(tmp_path):
    """Four stores of 20 entries' room share a folder, and each writes 50 entries of 200 bytes 4 times."""
    limit, wrong, found = 4_000, [], []

    def work():
        store = ProgramStore(tmp_path, "b", SECRET, limit)
        try:
            for i in 4 * list(range(50)):
                store.put(str(i), bytes([i]) * 168)
                got = store.get(str(i))
                (found if got == bytes([i]) * 168 else wrong).append(got)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [w for w in wrong if w is not None] == []
    assert len(found) > 400
    # Each may write an eighth beyond what it saw.
    assert size(tmp_path) <= limit + 4 * limit // 8
