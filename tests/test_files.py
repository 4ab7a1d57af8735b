"""Files are written whole or not at all."""

import json
import os

import numpy as np
import pytest

from gpn_ref.files import atomic_write, named, read_text, write_json


def test_the_file_appears_whole(tmp_path):
    path = tmp_path / "a.txt"
    with atomic_write(path) as file:
        file.write("één\n")
        assert not path.exists()
    assert path.read_bytes() == "één\n".encode()
    with atomic_write(path, "wb") as file:
        file.write(b"\0")
    assert path.read_bytes() == b"\0" and list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), atomic_write(path) as file:
        file.write("new")
        raise RuntimeError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_an_unwritable_place_is_named_as_the_user_knows_it(tmp_path):
    with pytest.raises(OSError) as caught, atomic_write(tmp_path / "none" / "a.txt"):
        pass
    assert caught.value.filename == str(tmp_path / "none" / "a.txt")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError), atomic_write(tmp_path / "folder") as file:
        file.write("x")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty; it must hold UTF-8 text"),
        (b"\xef\xbb\xbf", "is empty; it must hold UTF-8 text"),
        (b"a\xffb", "is not UTF-8 text: byte 1 is 0xff"),
        (b"ab\0", "is a binary file: byte 2 is 0"),
    ],
)
def test_what_is_not_text_is_refused(tmp_path, data, message):
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=message):
        read_text(path)


def test_a_byte_order_mark_and_windows_newlines_are_dropped(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\n")
    assert read_text(tmp_path / "a.txt") == "one\ntwo\n"


def test_a_link_is_followed(tmp_path):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "a.txt", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    with atomic_write(link) as file:
        file.write("new")
    assert target.read_text() == "new" and link.is_symlink() and os.listdir(target.parent) == ["a.txt"]


def test_what_is_no_regular_file_is_not_replaced(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to("/dev/null")
    for path in (pipe, link, "/dev/null"):
        with pytest.raises(OSError, match="it is no regular file") as caught, atomic_write(path) as file:
            file.write("x")
        assert caught.value.filename == str(path)
    assert pipe.is_fifo() and not os.path.isfile("/dev/null") and sorted(os.listdir(tmp_path)) == ["link", "pipe"]


def test_a_full_disk_names_the_file(tmp_path):
    with pytest.raises(OSError) as caught, atomic_write(tmp_path / "a.txt"):
        raise OSError(28, "No space left on device")
    assert (caught.value.filename, caught.value.strerror) == (str(tmp_path / "a.txt"), "No space left on device")
    with pytest.raises(ConnectionResetError) as caught, named("a.txt"):  # what is no fault of the file
        raise OSError(104, "Connection reset by peer")
    assert caught.value.filename is None
    assert os.listdir(tmp_path) == []


def test_json_has_null_for_what_is_no_number(tmp_path):
    record = {"a": [1, np.float32(0.5), float("nan")], 2: np.array([[np.inf, 3.0]]), "é": (None, True, np.int64(4))}
    write_json(tmp_path / "a.json", record)
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"a": [1, 0.5, None], "2": [[None, 3.0]], "é": [None, True, 4]}
    assert "é" in text and text.endswith("}\n")
