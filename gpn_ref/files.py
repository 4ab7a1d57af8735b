"""Files that are never half-written, and the folder of what ships with the package."""

import os
from contextlib import contextmanager
from pathlib import Path

_package = Path(__file__).resolve().parent
DATA = _package / "data" if (_package / "data").is_dir() else _package.parent / "data"  # a wheel, or a clone


@contextmanager
def atomic_write(path, mode="w"):
    """Open a temporary neighbour of `path`; flush it to the disk and rename it over `path` when the block ends well.

    When the block fails nothing is left behind and `path` is as it was. Text is UTF-8 with plain newlines.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    try:
        with open(temporary, mode, **text) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        if os.name == "posix":  # bring the rename to the disk; Windows can't open directories
            directory = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(temporary):
            error.filename = str(path)  # the name that the user knows
        raise


def read_text(path):
    """The file's text; a file that is empty, binary or not UTF-8 is a ValueError that says so."""
    data = Path(path).read_bytes()
    if not data:
        raise ValueError(f"{path} is empty; it must hold UTF-8 text")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}") from None
    if "\0" in text:
        raise ValueError(f"{path} is a binary file: byte {data.index(0)} is 0; it must hold UTF-8 text")
    return text.removeprefix("\ufeff").replace("\r\n", "\n")
