"""Files are written whole or not at all."""

import pytest

from gpn_ref.files import atomic_write, read_text


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
