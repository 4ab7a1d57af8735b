"""Downloads that are checked and cached: a file is there whole and as expected, or not at all."""

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from pathlib import Path

from tqdm import tqdm

from gpn_ref.files import atomic_write

CHUNK = 1 << 16  # bytes


def cache_folder():
    """GPN_REF_CACHE, or else gpn_ref in XDG_CACHE_HOME, or else ~/.cache/gpn_ref."""
    if own := os.environ.get("GPN_REF_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpn_ref"


def download(url, path, sha256, size, timeout=20):
    """Have the file of `size` bytes and that `sha256` (hex) at `path`: fetch it from `url` if need be.

    It gives up after `timeout` seconds without an answer. An OSError of one line tells what went wrong; then
    `path` is as it was.
    """
    path = Path(path)
    if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
        return
    try:
        with urllib.request.urlopen(url, timeout=timeout) as response:
            _fetch(response, url, path, sha256, size)
    except urllib.error.HTTPError as error:
        error.close()
        raise OSError(f"cannot download {url}: the server answered {error.code} {error.reason}") from None
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", None) or error
        raise OSError(f"cannot download {url}: {reason or type(error).__name__}") from None


def _fetch(response, url, path, sha256, size):
    digest, received = hashlib.sha256(), 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        atomic_write(path, "wb") as file,
        tqdm(total=size, desc=path.name, unit="B", unit_scale=True, disable=None) as bar,
    ):
        while received <= size and (chunk := response.read(CHUNK)):
            file.write(chunk)
            digest.update(chunk)
            received += len(chunk)
            bar.update(len(chunk))
        if received < size:
            raise OSError(f"cannot download {url}: the connection was cut after {received} of {size} bytes")
        if received > size or digest.hexdigest() != sha256:
            raise OSError(f"cannot download {url}: it is not the file expected (size or SHA-256 differ)")
