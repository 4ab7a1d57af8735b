"""Files that are never half-written, and the folder of what ships with the package."""

import codecs
import errno
import json
import os
import re
from contextlib import contextmanager
from math import isfinite
from pathlib import Path

_package = Path(__file__).resolve().parent
DATA = _package / "data" if (_package / "data").is_dir() else _package.parent / "data"  # a wheel, or a clone
TRAINED = DATA / "tiny.safetensors"  # the model to look at where no run is named


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # what a write meets; the system names no file then


@contextmanager
def named(path, other=None):
    """Errors of a full disk inside the block name `path`; so do those that name `other`, a file in its stead."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in FULL or other and error.filename == str(other):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


@contextmanager
def atomic_write(path, mode="w"):
    """Open a temporary neighbour of `path`; flush it to the disk and rename it over `path` when the block ends well.

    When the block fails nothing is left behind and `path` is as it was. A symbolic link is followed; what is there
    and no regular file is an OSError. Text is UTF-8 with plain newlines.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        code = errno.EISDIR if target.is_dir() else errno.EINVAL
        raise OSError(code, "it is no regular file, and would be replaced by one", str(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    try:
        with named(path, temporary):
            with open(temporary, mode, **text) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
            if os.name == "posix":  # bring the rename to the disk; Windows can't open directories
                directory = os.open(target.parent, os.O_RDONLY)
                try:
                    os.fsync(directory)
                finally:
                    os.close(directory)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path, record):
    """Write a record as JSON, a line a list of numbers; what JSON does not have, NaN and infinity, becomes null."""
    text = json.dumps(_plain(record), indent=2, ensure_ascii=False, allow_nan=False)
    text = re.sub(r"\[\n[^\[\]{}\"]*\]", lambda found: re.sub(r"\n *", " ", found[0]), text)
    with atomic_write(path) as file:
        file.write(text + "\n")


def _plain(value):
    if isinstance(value, dict):
        return {_plain(str(name)): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if hasattr(value, "tolist"):  # of NumPy
        return _plain(value.tolist())
    if isinstance(value, str):  # the name of a file may hold bytes that are no text
        return value.encode("utf-8", "backslashreplace").decode()
    return None if isinstance(value, float) and not isfinite(value) else value


def read_text(path):
    """The file's text; a file that is empty, binary or not UTF-8 is a ValueError that says so."""
    data = Path(path).read_bytes()
    if not data.removeprefix(codecs.BOM_UTF8):
        raise ValueError(f"{path} is empty; it must hold UTF-8 text")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}") from None
    if "\0" in text:
        raise ValueError(f"{path} is a binary file: byte {data.index(0)} is 0; it must hold UTF-8 text")
    return text.removeprefix("\ufeff").replace("\r\n", "\n")
