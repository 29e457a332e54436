"""Three-way merging of stored states, looked at by restoring the result."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.content.store import ObjectStore
from holdfast.snapshot.manager import CheckpointManager
from holdfast.snapshot.merge import Merged, merge_states

LABELS = ("ours", "base", "theirs")
Change = Callable[[Path], object]


class Bench:
    """One state, changed in two ways, and the result of bringing both together."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manager = CheckpointManager(ObjectStore(folder / "objects.db"), folder)
        self.tree = folder / "tree"
        self.tree.mkdir()

    def state(self) -> str:
        return self.manager.state_of(self.tree)

    def after(self, base: str, change: Change) -> str:
        self.bring(base)
        change(self.tree)
        return self.state()

    def bring(self, state: str) -> None:
        self.manager.restore(self.tree, state, aside=self.folder / "aside")

    def merge(self, prepare: Change, ours: Change, theirs: Change, *, theirs_wins: bool = False) -> Merged:
        prepare(self.tree)
        base = self.state()
        states = {"ours": self.after(base, ours), "theirs": self.after(base, theirs)}
        with self.manager.storing() as batch:
            merged = merge_states(
                self.manager.reader,
                batch,
                base=base,
                **states,
                labels=LABELS,
                hides=lambda path: path.startswith(b".git"),
                theirs_wins=theirs_wins,
            )
            batch.commit()
        self.bring(merged.state)
        return merged

    def files(self) -> dict[str, str]:
        found = {}
        for path in sorted(self.tree.rglob("*")):
            name = str(path.relative_to(self.tree))
            if path.is_symlink():
                found[name] = f"-> {os.readlink(path)}"
            elif path.is_file():
                found[name] = path.read_text()
            elif not any(path.iterdir()):
                found[name] = "(empty)"
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.manager.objects.close()


def write(**contents: str) -> Change:
    def do(tree: Path) -> None:
        for name, content in contents.items():
            place = tree / name.replace("__", "/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content)

    return do


def both(*changes: Change) -> Change:
    def do(tree: Path) -> None:
        for change in changes:
            change(tree)

    return do


def nothing(_tree: Path) -> None:
    pass


def remove(name: str) -> Change:
    def do(tree: Path) -> None:
        place = tree / name
        if place.is_dir():
            for below in sorted(place.rglob("*"), reverse=True):
                below.rmdir() if below.is_dir() else below.unlink()
            place.rmdir()
        else:
            place.unlink()

    return do


def test_changes_of_different_files_come_together(bench: Bench) -> None:
    merged = bench.merge(write(a="1", b="1"), write(a="2", new="n"), both(write(b="2"), write(d__e="deep")))
    assert merged.conflicts == ()
    assert bench.files() == {"a": "2", "b": "2", "new": "n", "d/e": "deep"}


def test_where_only_they_changed_anything_their_state_is_taken_whole(bench: Bench) -> None:
    merged = bench.merge(write(a="1"), nothing, write(**{"a": "2", ".git__index": "theirs"}))
    assert merged.conflicts == ()
    assert bench.files() == {"a": "2", ".git/index": "theirs"}


def test_what_is_hidden_is_not_merged(bench: Bench) -> None:
    bench.merge(write(**{".git__index": "base"}), write(a="ours"), write(**{".git__index": "theirs", "b": "theirs"}))
    assert bench.files() == {".git/index": "base", "a": "ours", "b": "theirs"}


def test_different_lines_of_one_file_come_together(bench: Bench) -> None:
    lines = "".join(f"{number}\n" for number in range(9))
    merged = bench.merge(write(a=lines), write(a="first\n" + lines), write(a=lines + "last\n"))
    assert merged.conflicts == ()
    assert bench.files() == {"a": "first\n" + lines + "last\n"}


def test_the_same_lines_are_a_conflict_with_both_versions_between_marks(bench: Bench) -> None:
    merged = bench.merge(write(a="1\n"), write(a="ours\n"), write(a="theirs\n"))
    assert [(each.path, each.is_marked) for each in merged.conflicts] == [(b"a", True)]
    assert bench.files()["a"] == "<<<<<<< ours\nours\n||||||| base\n1\n=======\ntheirs\n>>>>>>> theirs\n"


def test_the_same_change_on_both_sides_is_no_conflict(bench: Bench) -> None:
    merged = bench.merge(write(a="1", b="1"), both(write(a="2"), remove("b")), both(write(a="2"), remove("b")))
    assert merged.conflicts == ()
    assert bench.files() == {"a": "2"}


@pytest.mark.parametrize(
    ("ours", "theirs", "kept", "reason"),
    [
        (write(a="ours"), remove("a"), {"a": "ours"}, "one changed it, the other removed it"),
        (remove("a"), write(a="theirs"), {}, "one removed it, the other changed it"),
    ],
)
def test_removed_here_and_changed_there_is_a_conflict_and_ours_stays(
    bench: Bench, ours: Change, theirs: Change, kept: dict[str, str], reason: str
) -> None:
    merged = bench.merge(write(a="1"), ours, theirs)
    assert [(each.path, each.reason, each.is_marked) for each in merged.conflicts] == [(b"a", reason, False)]
    assert bench.files() == kept


def test_both_made_a_file_that_is_no_text_is_a_conflict(bench: Bench) -> None:
    merged = bench.merge(nothing, write(a="\0ours"), write(a="\0theirs"))
    assert [each.reason for each in merged.conflicts] == ["both made it, each in its own way"]
    assert bench.files() == {"a": "\0ours"}


def test_the_execute_bit_of_one_side_and_the_text_of_the_other_come_together(bench: Bench) -> None:
    merged = bench.merge(write(a="1\n"), lambda tree: (tree / "a").chmod(0o755), write(a="2\n"))
    assert merged.conflicts == ()
    assert bench.files() == {"a": "2\n"}
    assert stat.S_IMODE((bench.tree / "a").stat().st_mode) == 0o755


def test_two_different_modes_are_a_conflict(bench: Bench) -> None:
    merged = bench.merge(write(a="1\n"), lambda tree: (tree / "a").chmod(0o700), lambda tree: (tree / "a").chmod(0o600))
    assert [each.path for each in merged.conflicts] == [b"a"]


def test_a_folder_they_removed_goes_but_not_with_what_we_put_into_it(bench: Bench) -> None:
    bench.merge(write(d__a="1", d__b="1", e__a="1"), write(d__new="ours"), both(remove("d"), remove("e")))
    assert bench.files() == {"d/new": "ours"}


def test_a_folder_we_removed_comes_back_for_what_they_put_into_it(bench: Bench) -> None:
    merged = bench.merge(write(d__a="1"), remove("d"), write(d__new="theirs"))
    assert merged.conflicts == ()
    assert bench.files() == {"d/new": "theirs"}


def test_a_folder_that_became_a_file_there_and_was_changed_here_is_one_conflict(bench: Bench) -> None:
    merged = bench.merge(write(d__a="1", d__b="1"), write(d__a="ours"), both(remove("d"), write(d="a file")))
    assert [each.path for each in merged.conflicts] == [b"d"]
    assert bench.files() == {"d/a": "ours", "d/b": "1"}


def test_a_folder_that_became_a_symlink_there_and_was_left_alone_here_becomes_one(bench: Bench) -> None:
    def link(tree: Path) -> None:
        remove("d")(tree)
        (tree / "d").symlink_to("elsewhere")

    merged = bench.merge(write(d__a="1", c="1"), write(c="ours"), link)
    assert merged.conflicts == ()
    assert bench.files() == {"c": "ours", "d": "-> elsewhere"}


def test_what_lies_in_a_folder_that_is_a_file_here_is_a_conflict(bench: Bench) -> None:
    merged = bench.merge(write(c="1"), write(d="a file"), write(d__a="theirs"))
    assert b"d" in [each.path for each in merged.conflicts]
    assert bench.files() == {"c": "1", "d": "a file"}


def test_what_they_changed_in_a_folder_that_is_a_file_here_is_named_path_by_path(bench: Bench) -> None:
    ours = both(remove("d"), write(d="a file"))
    merged = bench.merge(write(d__x="1", d__same="1"), ours, write(d__x="theirs", d__n="new"))
    assert [(each.path, each.reason) for each in merged.conflicts] == [
        (b"d", "it is a folder for one and something else for the other"),
        (b"d/n", "the folder it lies in is something else now"),
        (b"d/x", "the folder it lies in is something else now"),
    ]
    assert bench.files() == {"d": "a file"}


def test_what_lies_in_a_folder_whose_mode_both_changed_comes_together(bench: Bench) -> None:
    def theirs(tree: Path) -> None:
        (tree / "d").chmod(0o750)
        (tree / "d" / "a").write_text("theirs")

    merged = bench.merge(write(d__a="1"), lambda tree: (tree / "d").chmod(0o700), theirs)
    assert [each.path for each in merged.conflicts] == [b"d"]
    assert bench.files() == {"d/a": "theirs"}


def test_both_changed_the_mode_of_a_folder(bench: Bench) -> None:
    merged = bench.merge(
        write(d__a="1"), lambda tree: (tree / "d").chmod(0o700), lambda tree: (tree / "d").chmod(0o750)
    )
    assert [each.reason for each in merged.conflicts] == ["both changed the folder's mode or attributes"]
    assert stat.S_IMODE((bench.tree / "d").stat().st_mode) == 0o700


def test_a_change_of_the_tree_itself_comes_along(bench: Bench) -> None:
    bench.tree.chmod(0o755)
    merged = bench.merge(write(a="1"), write(a="2"), lambda tree: tree.chmod(0o711))
    assert merged.conflicts == ()
    assert bench.files() == {"a": "2"}
    assert stat.S_IMODE(bench.tree.stat().st_mode) == 0o711


def test_empty_folders_and_links_of_theirs_come_along(bench: Bench) -> None:
    def theirs(tree: Path) -> None:
        (tree / "empty").mkdir()
        (tree / "one").write_text("linked")
        (tree / "other").hardlink_to(tree / "one")

    bench.merge(write(a="1"), write(a="2"), theirs)
    assert bench.files() == {"a": "2", "empty": "(empty)", "one": "linked", "other": "linked"}
    assert (bench.tree / "one").stat().st_ino == (bench.tree / "other").stat().st_ino


@pytest.mark.parametrize(
    ("ours", "theirs", "result"),
    [
        (write(a="ours\n"), write(a="theirs\n"), {"a": "theirs\n"}),
        (write(a="ours\n"), remove("a"), {}),
        (remove("a"), write(a="theirs\n"), {"a": "theirs\n"}),
        (both(remove("a"), write(a__b="ours")), write(a="theirs\n"), {"a": "theirs\n"}),
    ],
)
def test_the_later_one_wins_if_asked_for(bench: Bench, ours: Change, theirs: Change, result: dict[str, str]) -> None:
    merged = bench.merge(write(a="1\n"), ours, theirs, theirs_wins=True)
    assert merged.conflicts == ()
    assert bench.files() == result


def lines(*changed: tuple[int, str]) -> str:
    """Nine lines, some of them changed."""
    texts = {number: f"line {number}" for number in range(1, 10)} | dict(changed)
    return "".join(f"{text}\n" for text in texts.values())


def chmod(mode: int, name: str = "a") -> Change:
    return lambda tree: (tree / name).chmod(mode)


def mark(value: str, name: str = "user.by") -> Change:
    return lambda tree: os.setxattr(tree / "a", name, value.encode())


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_the_later_one_wins_only_the_lines_that_both_changed(bench: Bench) -> None:
    ours = both(write(a=lines((1, "ours"), (5, "ours"))), chmod(0o755))
    merged = bench.merge(write(a=lines()), ours, write(a=lines((5, "theirs"), (9, "theirs"))), theirs_wins=True)
    assert merged.conflicts == ()
    assert bench.files() == {"a": lines((1, "ours"), (5, "theirs"), (9, "theirs"))}
    assert mode_of(bench.tree / "a") == 0o755


@pytest.mark.parametrize("theirs_wins", [False, True])
@pytest.mark.parametrize("content", ["text\n", "\0binary"])
def test_each_attribute_comes_from_the_one_that_changed_it(bench: Bench, content: str, theirs_wins: bool) -> None:
    """The mode from one side, an extended attribute and the content from the other; also if it is no text."""
    theirs = both(write(a=content + "more\n"), mark("theirs"))
    merged = bench.merge(write(a=content), chmod(0o755), theirs, theirs_wins=theirs_wins)
    assert merged.conflicts == ()
    assert bench.files() == {"a": content + "more\n"}
    assert mode_of(bench.tree / "a") == 0o755
    assert os.getxattr(bench.tree / "a", "user.by") == b"theirs"


@pytest.mark.parametrize("theirs_wins", [False, True])
def test_a_change_of_the_content_here_and_of_the_mode_there_come_together(bench: Bench, theirs_wins: bool) -> None:
    merged = bench.merge(write(a="\0"), write(a="\0ours"), chmod(0o711), theirs_wins=theirs_wins)
    assert merged.conflicts == ()
    assert (bench.files(), mode_of(bench.tree / "a")) == ({"a": "\0ours"}, 0o711)


def test_the_later_one_wins_the_mode_that_both_changed_and_nothing_else(bench: Bench) -> None:
    ours = both(write(a=lines((1, "ours"))), chmod(0o700), mark("ours", "user.ours"))
    theirs = both(write(a=lines((9, "theirs"))), chmod(0o755), mark("theirs", "user.theirs"))
    assert bench.merge(write(a=lines()), ours, theirs, theirs_wins=True).conflicts == ()
    assert bench.files() == {"a": lines((1, "ours"), (9, "theirs"))}
    assert mode_of(bench.tree / "a") == 0o755
    assert sorted(os.listxattr(bench.tree / "a")) == ["user.ours", "user.theirs"]


def test_the_later_one_wins_a_file_that_is_no_text_but_the_mode_of_the_earlier_stays(bench: Bench) -> None:
    ours = both(write(a="\0ours"), chmod(0o755))
    assert bench.merge(write(a="\0"), ours, write(a="\0theirs"), theirs_wins=True).conflicts == ()
    assert (bench.files(), mode_of(bench.tree / "a")) == ({"a": "\0theirs"}, 0o755)


def test_the_later_one_wins_the_mode_of_a_folder_and_what_both_put_into_it_stays(bench: Bench) -> None:
    ours = both(write(d__ours="ours"), chmod(0o700, "d"))
    theirs = both(write(d__theirs="theirs"), chmod(0o750, "d"))
    assert bench.merge(write(d__a="1"), ours, theirs, theirs_wins=True).conflicts == ()
    assert bench.files() == {"d/a": "1", "d/ours": "ours", "d/theirs": "theirs"}
    assert mode_of(bench.tree / "d") == 0o750


def test_the_later_one_wins_a_symlink_that_both_changed_and_one_that_is_a_file_for_the_other(bench: Bench) -> None:
    def link(name: str, target: str) -> Change:
        def do(tree: Path) -> None:
            (tree / name).unlink(missing_ok=True)
            (tree / name).symlink_to(target)

        return do

    base = both(link("a", "1"), link("b", "1"), write(c="1\n"))
    ours = both(link("a", "ours"), link("b", "ours"), write(c="ours\n"), write(kept="ours"))
    theirs = both(link("a", "theirs"), remove("b"), write(b="a file\n"), link("c", "theirs"))
    assert bench.merge(base, ours, theirs, theirs_wins=True).conflicts == ()
    assert bench.files() == {"a": "-> theirs", "b": "a file\n", "c": "-> theirs", "kept": "ours"}


def test_names_of_one_file_stay_one_file_if_both_changed_it(bench: Bench) -> None:
    def link(tree: Path) -> None:
        (tree / "b").hardlink_to(tree / "a")

    base, theirs = both(write(a=lines()), link), both(write(a=lines((9, "theirs"))))
    assert bench.merge(base, both(write(a=lines((1, "ours"))), chmod(0o755)), theirs).conflicts == ()
    assert bench.files() == dict.fromkeys("ab", lines((1, "ours"), (9, "theirs")))
    assert (bench.tree / "a").stat().st_ino == (bench.tree / "b").stat().st_ino


@pytest.mark.parametrize("theirs_wins", [False, True])
def test_a_text_of_many_megabytes_is_merged_line_by_line_as_well(bench: Bench, theirs_wins: bool) -> None:
    filler = "".join(f"{number:>15}\n" for number in range(400_000))
    merged = bench.merge(
        write(a=f"1\n{filler}1\n"),
        write(a=f"ours\n{filler}1\n"),
        write(a=f"1\n{filler}theirs\n"),
        theirs_wins=theirs_wins,
    )
    assert merged.conflicts == ()
    assert bench.files() == {"a": f"ours\n{filler}theirs\n"}
    assert bench.state() == merged.state  # it is stored as a look at it stores it


NUMBERS = st.sets(st.integers(1, 30), max_size=8)


@settings(max_examples=40, deadline=None)
@given(ours=NUMBERS, theirs=NUMBERS, modes=st.tuples(*[st.sampled_from([0o644, 0o755, 0o600])] * 3))
def test_if_the_later_one_wins_nothing_that_only_the_earlier_changed_is_lost(
    tmp_path_factory: pytest.TempPathFactory, ours: set[int], theirs: set[int], modes: tuple[int, int, int]
) -> None:
    """Lines that are far enough apart not to be one change, and modes."""
    bench = Bench(tmp_path_factory.mktemp("bench"))

    def text(by: dict[int, str]) -> str:
        return "".join(f"{by.get(number, 'base')} {number}\n\nbetween {number}\n\n" for number in range(1, 31))

    def become(by: str, numbers: set[int], mode: int) -> Change:
        return both(write(a=text(dict.fromkeys(numbers, by))), chmod(mode))

    base_mode, our_mode, their_mode = modes
    merged = bench.merge(
        become("base", set(), base_mode),
        become("ours", ours, our_mode),
        become("theirs", theirs, their_mode),
        theirs_wins=True,
    )
    bench.manager.objects.close()
    assert merged.conflicts == ()
    assert bench.files() == {"a": text(dict.fromkeys(ours, "ours") | dict.fromkeys(theirs, "theirs"))}
    assert mode_of(bench.tree / "a") == (our_mode if their_mode == base_mode else their_mode)


NAMES = st.sampled_from(["a", "b", "d/a", "d/b", "d/e/a", "e"])
TREES = st.dictionaries(NAMES, st.text("xy\n", max_size=6), max_size=5)


@settings(max_examples=60, deadline=None)
@given(base=TREES, ours=TREES, theirs=TREES, theirs_wins=st.booleans())
def test_no_change_is_lost_without_a_conflict(
    tmp_path_factory: pytest.TempPathFactory,
    base: dict[str, str],
    ours: dict[str, str],
    theirs: dict[str, str],
    theirs_wins: bool,
) -> None:
    """Every path only one side changed is as that side has it, or is below or above a conflict."""
    bench = Bench(tmp_path_factory.mktemp("bench"))

    def become(wanted: dict[str, str]) -> Change:
        def do(tree: Path) -> None:
            for path in sorted(tree.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            for name, content in wanted.items():
                place = tree / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(content)

        return do

    merged = bench.merge(become(base), become(ours), become(theirs), theirs_wins=theirs_wins)
    bench.manager.objects.close()
    assert not (theirs_wins and merged.conflicts)
    found = bench.files()
    conflicts = {os.fsdecode(each.path) for each in merged.conflicts}
    for name in {*base, *ours, *theirs}:
        if any(name == other or name.startswith(other + "/") or other.startswith(name + "/") for other in conflicts):
            continue
        if ours.get(name) == base.get(name):
            assert found.get(name) == theirs.get(name)
        elif theirs.get(name) == base.get(name) or theirs.get(name) == ours.get(name):
            assert found.get(name) == ours.get(name)
