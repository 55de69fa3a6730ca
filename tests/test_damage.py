"""Files that are not as they were written: refused with one exception and a sentence, whatever is wrong.

`pytest -m slow tests/test_damage.py -s` prints the counts.
"""

import collections
import copy
import json
import warnings

import numpy as np
import pytest
from command import command
from safetensors.numpy import load as parts_of
from safetensors.numpy import save

import qpde
from qpde import DamagedFile
from qpde._files.archive import sealed
from qpde._files.document import _digest
from qpde._runs.record import read_record
from qpde._runs.run_folder import read_certificates
from qpde._train.checkpoint import read_checkpoint

ODD = [
    None,
    True,
    -1,
    0,
    1,
    2**70,
    1.5,
    float("nan"),
    1e308,
    "",
    "x",
    "../x.py:y",
    [],
    [1],
    {},
    {"a": 1},
]
PROBLEM = {"domain": qpde.Ball(2), "equation": lambda x, u: u.laplacian + 1.0}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder with all kinds of files, and the problem of its solution."""
    folder = tmp_path_factory.mktemp("damage") / "run"
    assert command("solve", "survival", "--dim", 2, "--steps", 3, "--out", folder).code < 2
    assert command("certify", folder, "--heuristic").code == 0
    return folder, qpde.zoo.survival(2)


def text_and_data(data):
    """Header of a safetensors file as plain values, the header inside it, and the bytes of the arrays."""
    size = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + size])
    return head, json.loads(head["__metadata__"]["header"]), data[8 + size :]


def joined(head, inner, content):
    head = copy.deepcopy(head)
    head["__metadata__"]["header"] = json.dumps(inner)
    text = json.dumps(head, separators=(",", ":")).encode()
    return len(text).to_bytes(8, "little") + text + content


def places(tree):
    """All dicts and lists of a tree of plain values that are not empty."""
    found = [tree] if isinstance(tree, dict | list) and tree else []
    items = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return found + [place for item in items for place in places(item)]


def alter(rng, tree):
    """Change a key, or the kind of a value, somewhere in a tree of plain values."""
    spots = places(tree)
    spot = spots[rng.integers(len(spots))]
    keys = list(spot) if isinstance(spot, dict) else list(range(len(spot)))
    key = keys[rng.integers(len(keys))]
    way = rng.integers(3)
    if way == 0:
        del spot[key]
    elif way == 1:
        before = spot[key]
        others = [odd for odd in ODD if type(odd) is not type(before)]
        spot[key] = others[rng.integers(len(others))]
    elif isinstance(spot, dict):
        spot[f"{key}x"] = spot.pop(key) if rng.integers(2) else spot[key]
    else:
        spot.append({})


def bytes_changed(rng, data):
    """Bytes flipped, cut off, added, or moved: the digest is left as it was."""
    way = rng.integers(5)
    if way == 0:
        return data[: rng.integers(len(data))]
    if way == 1:
        return data + bytes(rng.integers(0, 256, rng.integers(1, 9), np.uint8))
    if way == 2:
        start, size = rng.integers(len(data)), rng.integers(1, 200)
        return data[:start] + data[start + size :]
    changed = bytearray(data)
    limit = len(data) if way == 3 else 8 + int.from_bytes(data[:8], "little")
    for _ in range(rng.integers(1, 4)):
        changed[rng.integers(limit)] ^= int(rng.integers(1, 256))
    return bytes(changed)


def structure_changed(rng, data):
    """Keys, kinds, shapes and names changed, under a valid digest."""
    head, inner, content = text_and_data(data)
    way = rng.integers(4)
    names = [name for name in head if name != "__metadata__"]
    name = names[rng.integers(len(names))]
    if way == 0:
        alter(rng, inner)
    elif way == 1:
        kinds = ["F64", "I64", "U64", "F32", "I32", "U32", "BOOL", "BF16", "C64", "X", 3, None]
        head[name]["dtype"] = kinds[rng.integers(len(kinds))]
    elif way == 2:
        shape = head[name]["shape"]
        head[name]["shape"] = [[*shape, 1], [1, *shape], shape[::-1], [], [-1], [2**40], None][
            rng.integers(7)
        ]
    else:
        alter(rng, {"array": head[name], "all": {n: head[n] for n in names}})
        if rng.integers(2):
            head[f"{name}x"] = head.pop(name)
    try:
        return sealed(joined(head, inner, content))
    except ValueError:
        return joined(head, inner, content)


def content_of(solution):
    """Everything that a file says of a solution."""
    leaves = [np.asarray(leaf) for leaf in vars(solution.history).values()]
    points = np.array([[0.1, 0.2], [0.3, -0.4]])
    numbers = (solution.steps, solution.seconds, solution.rule, solution.seed, solution.status)
    return [leaf.astype(float).tobytes() for leaf in (*leaves, solution(points))], numbers


def judge(counts, read, expected, what):
    """Note how a reader takes a file; raises where it is taken with other content."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = read()
        except DamagedFile:
            counts["damaged"] += 1
        except ValueError:
            counts["refused otherwise"] += 1
        else:
            assert found == expected, what
            counts["the same content"] += 1


def mutate_solutions(run, count, seed):
    folder, problem = run
    source = folder / "solution.safetensors"
    data, expected = source.read_bytes(), content_of(qpde.load(source))
    path, counts, rng = folder.parent / "mutated.safetensors", collections.Counter(), None
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        change = structure_changed if number % 2 else bytes_changed
        changed = change(rng, data)
        if changed == data:
            continue
        path.write_bytes(changed)
        # Half with the problem given, half from the recipe in the file.
        given = problem if number % 4 < 2 else None

        def read(given=given):
            return content_of(qpde.load(path, problem=given))

        judge(counts, read, expected, (seed, number))
    return counts


def mutate_others(run, count, seed):
    """The checkpoint, `run.json` and `certificate.json`."""
    folder, _ = run
    counts = collections.Counter()
    scratch = folder.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    readers = {
        "checkpoint.safetensors": lambda: str(read_checkpoint(scratch / "checkpoint.safetensors")),
        "run.json": lambda: str(read_record(scratch)),
        "certificate.json": lambda: str(read_certificates(scratch)),
    }
    for name in readers:
        (scratch / name).write_bytes((folder / name).read_bytes())
    expected = {name: read() for name, read in readers.items()}
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        name = list(readers)[number % 3]
        data = (folder / name).read_bytes()
        resealed = bool(rng.integers(2))
        if name.endswith(".json"):
            if not resealed:
                changed = bytearray(data)
                changed[rng.integers(len(data))] ^= int(rng.integers(1, 256))
            else:
                tree = json.loads(data)
                result = tree.pop("result", None)  # numbers for people, of any kind
                del tree["sha256"]
                alter(rng, tree)
                tree |= {"result": result} if name == "run.json" else {}
                changed = json.dumps(tree | {"sha256": _digest(tree)}).encode()
        else:
            changed = (structure_changed if resealed else bytes_changed)(rng, data)
        (scratch / name).write_bytes(changed)

        # Under a valid digest a document may say something else that is allowed, and what of a checkpoint is
        # the run's own (its loop and its identity) is compared with the run.
        if resealed:
            judge_resealed(counts, readers[name], expected[name])
        else:
            judge(counts, readers[name], expected[name], (name, seed, number))
        (scratch / name).write_bytes(data)
    return counts


def judge_resealed(counts, read, expected):
    try:
        found = read()
    except ValueError as error:
        counts["damaged" if isinstance(error, DamagedFile) else "refused otherwise"] += 1
    else:
        counts["the same content" if found == expected else "another valid file"] += 1


def test_mutated_files_are_refused(run):
    counts = mutate_solutions(run, 60, 1)
    assert counts["damaged"] > 40
    counts = mutate_others(run, 60, 1)
    assert counts["damaged"] > 30


@pytest.mark.slow
def test_twenty_thousand_mutated_files(run):
    print("\nsolutions:", dict(mutate_solutions(run, 15_000, 2)))
    print("checkpoints, run.json, certificate.json:", dict(mutate_others(run, 5_000, 2)))


def test_the_kind_of_an_array_is_under_the_digest(run):
    """`F64` changed to `I64` loaded as a loss of 4.5e18 in format 1."""
    data = (run[0] / "solution.safetensors").read_bytes()
    place = data.index(b'"history/loss":{"dtype":"F64"')
    path = run[0].parent / "kind.safetensors"
    path.write_bytes(data[:place] + data[place:].replace(b'"F64"', b'"I64"', 1))
    with pytest.raises(DamagedFile, match="does not match its checksum") as caught:
        qpde.load(path)
    assert caught.value.path == path


def test_format_1_is_read_with_a_note_and_a_strict_schema(run, tmp_path):
    import hashlib

    def old(header, arrays):
        digest = hashlib.sha256(json.dumps(header).encode())
        for name in sorted(arrays):
            digest.update(name.encode() + arrays[name].tobytes())
        words = {"qpde": "solution", "format": "1", "header": json.dumps(header)}
        (tmp_path / "old.safetensors").write_bytes(
            save(arrays, words | {"sha256": digest.hexdigest()})
        )
        return qpde.load(tmp_path / "old.safetensors")

    data = (run[0] / "solution.safetensors").read_bytes()
    _, header, _ = text_and_data(data)
    arrays = {name: one for name, one in parts_of(data).items() if name[:9] != "programs/"}
    for name in ("run", "programs", "source"):
        del header[name]
    with pytest.warns(UserWarning, match="has the old format 1, whose checksum covers less"):
        assert content_of(old(header, arrays)) == content_of(qpde.load(run[0]))
    wrong = arrays | {"history/loss": arrays["history/loss"].view(np.int64)}
    with (
        pytest.warns(UserWarning, match="old format 1"),
        pytest.raises(DamagedFile, match=r"history/loss is int64\[3\]"),
    ):
        old(header, wrong)
    with pytest.raises(DamagedFile, match="header lacks 'rule'"):
        old({name: one for name, one in header.items() if name != "rule"}, arrays)


def test_check_tells_what_is_intact(run, tmp_path):
    import shutil

    folder = tmp_path / "run"
    shutil.copytree(run[0], folder)
    done = command("check", folder, "--json")
    names = ["run.json", "solution.safetensors", "checkpoint.safetensors", "certificate.json"]
    states = json.loads(done.out)
    assert (done.code, list(states)) == (0, [*names, "history.csv"])
    for name in states:
        path = folder / name
        data = path.read_bytes()
        path.write_bytes(data.replace(b"1", b"2", 1))
        done = command("check", folder)
        assert (done.code, done.err) == (1, f"qpde: {folder} is not intact: {name}.\n"), done.out
        assert done.out.count(" intact") == (4 if name != "run.json" else 3), done.out
        path.write_bytes(data)
    (folder / "solution.safetensors").unlink()
    assert "solution.safetensors        missing" in command("check", folder).out


def test_files_of_two_runs_are_not_mixed(run, tmp_path):
    import shutil

    folder, other = tmp_path / "run", tmp_path / "other"
    shutil.copytree(run[0], folder)
    words = ("solve", "survival", "--dim", 2, "--steps", 3, "--out", other, "--quiet")
    assert command(*words).code < 2
    for name in ("solution.safetensors", "checkpoint.safetensors"):
        shutil.copy(other / name, folder)
    with pytest.raises(DamagedFile, match="belongs to another run"):
        qpde.load(folder)
    done = command("check", folder)
    assert done.out.count("belongs to another run") == 2
    (folder / "run.json").write_bytes((run[0] / "run.json").read_bytes())
    record = json.loads((folder / "run.json").read_text())
    record["result"] = None
    del record["sha256"]
    (folder / "run.json").write_text(json.dumps(record | {"sha256": _digest(record)}))
    assert "belongs to another run" in command("resume", folder).err
