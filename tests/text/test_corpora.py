import hashlib
import http.server
import json
import socket
import sys
import threading
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpn_ref.cloze import read_questions
from gpn_ref.files import DATA
from gpn_ref.text import corpora
from gpn_ref.text.corpora import lambada, load_corpus, python_docs, read_files, split_documents, stories
from gpn_ref.text.download import cache_folder, download
from gpn_ref.text.tokenizer import encode, load_tokenizer

BODY = b"First Citizen:\nBefore we proceed any further, hear me speak.\n\n" * 3000
PASSAGES = (  # as LAMBADA's are: a text a line, whose last word is to be told
    b'{"text": "Tom had a red kite, and Ann and Kate took the kite"}\n'
    b'{"text": "\\"Is it you?\\" she said to Gabriel"}\n'
    b'{"text": "Ben\'s box is blue. \\u201cA box!\\u201d said Ben"}\n'
) * 20 + b'{"text"\n\n{"text": "It is the cat, the cat"}\n'
SHA256 = hashlib.sha256(BODY).hexdigest()


# --- text files


@settings(deadline=None, max_examples=200)
@given(st.text(alphabet="ab \n", max_size=300), st.integers(1, 40))
def test_documents_joined_are_the_text(text, size):
    documents = split_documents(text, size)
    assert "".join(documents) == text
    assert all(size // 2 < len(document) <= size for document in documents[:-1])
    assert all(0 < len(document) <= size for document in documents[-1:])


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        ("", []),
        ("short", ["short"]),
        ("one two\n\nthree\nfour", ["one two\n\n", "three\nfour"]),  # between paragraphs
        ("one two\nthree four", ["one two\n", "three four"]),  # else lines
        ("one two three four", ["one two ", "three four"]),  # else words
        ("0123456789abcdef", ["0123456789", "abcdef"]),  # else anywhere
        ("a\n\nb c d e f g h", ["a\n\nb c d ", "e f g h"]),  # a border in the first half is too early
    ],
)
def test_where_documents_are_cut(text, documents):
    assert split_documents(text, 10) == documents


def test_the_last_paragraphs_of_each_file_are_for_validation(tmp_path):
    paragraphs = [f"Paragraph {number}: " + "word " * 30 for number in range(200)]
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text("\n\n".join(name + p for p in paragraphs), encoding="utf-8")
    corpus = load_corpus("mine", [tmp_path / "one.txt", tmp_path / "two.txt"])
    assert (corpus.name, corpus.cloze) == ("mine", None)
    train, validation = "".join(corpus.train), "".join(corpus.validation)
    for name in ("one.txt", "two.txt"):
        kept = [number for number in range(200) if f"{name}Paragraph {number}: " in validation]
        assert kept == list(range(200 - len(kept), 200))
        assert 10 <= len(kept) <= 20
        assert [number for number in range(200) if f"{name}Paragraph {number}: " in train] == list(
            range(200 - len(kept))
        )
    assert max(map(len, corpus.train)) <= 4000
    assert all(document.startswith(("one.txt", "two.txt")) for document in corpus.train + corpus.validation)


def test_text_in_one_line_and_any_unicode(tmp_path):
    path = tmp_path / "line.txt"
    text = "日本語のテキスト🙂" * 2000
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    corpus = read_files("line", [path])
    assert "".join(corpus.train + corpus.validation) == text
    assert 0.05 * len(text) <= len("".join(corpus.validation)) <= 0.1 * len(text)


def test_validation_is_small_even_where_paragraphs_are_long(tmp_path):
    path = tmp_path / "two.txt"
    path.write_text("word " * 1400 + "\n\n" + "word " * 600, encoding="utf-8")
    assert 500 <= len("".join(read_files("two", [path]).validation)) <= 1000  # of 10,002 characters


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty; it must hold UTF-8 text"),
        (b" \n\n\t ", "holds nothing but white space"),
        (b"ab\xff", "is not UTF-8 text: byte 2 is 0xff"),
        ("Grüße".encode("latin-1"), "is not UTF-8 text: byte 2 is 0xfc"),
        ("text".encode("utf-16"), "is not UTF-8 text: byte 0 is 0xff"),
        (b"MZ\x00\x00\x01\x00", "is a binary file: byte 2 is 0; it must hold UTF-8 text"),
    ],
)
def test_what_is_no_text(tmp_path, data, message):
    good, path = tmp_path / "good.txt", tmp_path / "bad.txt"
    good.write_bytes(BODY)
    path.write_bytes(data)
    with pytest.raises(ValueError) as error:
        load_corpus("text", [good, path])
    assert str(error.value) == f"{path} {message}"


def test_what_is_no_file(tmp_path):
    with pytest.raises(IsADirectoryError) as error:
        load_corpus("text", [tmp_path])
    assert error.value.filename == str(tmp_path)
    with pytest.raises(FileNotFoundError):
        load_corpus("text", [tmp_path / "none.txt"])


def test_unknown_names_and_the_nearest_known():
    with pytest.raises(ValueError) as error:
        load_corpus("shakespear")
    assert str(error.value) == "unknown corpus 'shakespear'; did you mean 'shakespeare'?"
    with pytest.raises(ValueError) as error:
        load_corpus("xyz")
    assert str(error.value) == "unknown corpus 'xyz'; it must be one of stories, python-docs, shakespeare"


# --- stories


def test_stories_are_read_as_documents(tmp_path):
    (tmp_path / "train.txt").write_text("One day.\n\nTom sat.\nHe ran.\n\n\n", encoding="utf-8")
    (tmp_path / "validation.txt").write_text("Ann sat.\n", encoding="utf-8")
    item = {
        "text": "Ann has a kite",
        "answer": " kite",
        "kind": "thing",
        "distance": 5,
        "candidates": [" kite"],
    }
    (tmp_path / "cloze.jsonl").write_text(json.dumps(item) + "\n" + json.dumps(item) + "\n", encoding="utf-8")
    corpus = stories(tmp_path)
    assert corpus.name == "stories"
    assert corpus.train == ["One day.", "Tom sat.\nHe ran."]
    assert corpus.validation == ["Ann sat."]
    assert corpus.cloze == [item, item]


# --- the Python documentation


@pytest.fixture(scope="module")
def docs():
    return load_corpus("python-docs")


def test_python_docs_are_english_of_two_megabytes(docs):
    text = "".join(docs.train + docs.validation)
    assert 1.2e6 < len(text) < 4e6
    assert "Assert statements are a convenient way to insert debugging assertions" in text
    assert "Return the sample arithmetic mean of data." in text
    assert text.count(" the ") > 10_000


def test_python_docs_have_no_document_twice(docs):
    documents = docs.train + docs.validation
    assert len(set(documents)) == len(documents)
    assert max(map(len, documents)) <= 4000
    share = sum(map(len, docs.validation)) / sum(map(len, documents))
    assert 0.02 < share < 0.1
    assert docs.cloze is None


@pytest.fixture
def library(tmp_path):
    (tmp_path / "pydoc_data").mkdir()
    (tmp_path / "pydoc_data" / "topics.py").write_text(
        "# made by a tool\ntopics = {'assert': 'The assert statement.\\n', 'bool': r'''True \\and False.'''}\n",
        encoding="utf-8",
    )
    return tmp_path


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)


def test_a_small_library(library):
    write(
        library / "b.py",
        '"""Module b."""\nraise SystemExit("run!")\nclass C:\n    """Class C.\n\n    More.\n    """\n'
        '    def f(self):\n        "Method f."\n    async def g(self):\n        "Same."\n\n'
        'def h():\n    "Same."\n',
    )
    write(library / "a" / "__init__.py", '"""Package a, \\ud800."""\ndef f():\n    "Same."\n    return "\\d"\n')
    write(library / "latin.py", b'# -*- coding: latin-1 -*-\n"Gr\xfc\xdfe."\n')
    write(library / "none.py", "x = 1\n")
    write(library / "broken.py", "print 'old'\n")
    write(library / "test" / "test_b.py", '"""Not this."""')
    write(library / "site-packages" / "other.py", '"""Nor this."""')
    corpus = python_docs(library)
    assert sorted(corpus.train + corpus.validation) == sorted(
        [
            "The assert statement.\n",
            "True \\and False.",
            "Package a, ?.\n\nSame.",
            "Module b.\n\nClass C.\n\nMore.\n\nMethod f.",
            "Grüße.",
        ]
    )
    assert corpus == python_docs(library)


def test_long_topics_are_cut(library):
    write(library / "long.py", '"""' + "A paragraph of some words.\n\n" * 1000 + '"""')
    corpus = python_docs(library)
    lengths = [len(document) for document in corpus.train + corpus.validation]
    assert max(lengths) <= 4000
    assert sum(lengths) == 22 + 16 + 28 * 1000 - 2  # the last blank line is not in the docstring


def test_a_library_without_sources(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        python_docs(tmp_path)
    path = tmp_path / "pydoc_data" / "topics.py"
    assert str(error.value) == f"python-docs needs the sources of Python's library, but there is no {path}"


# --- downloads


class Handler(http.server.BaseHTTPRequestHandler):
    requests = 0

    def do_GET(self):
        type(self).requests += 1
        if self.path == "/none":
            self.send_error(404)
            return
        if self.path == "/silent":
            released.wait(10)
            self.close_connection = True
            return
        self.send_response(200)
        if self.path != "/unknown-length":
            self.send_header("Content-Length", str(len(PASSAGES if self.path == "/lambada" else BODY)))
        self.end_headers()
        body = {"/cut": BODY[:100_000], "/wrong": b"x" * len(BODY), "/long": BODY + b"more", "/lambada": PASSAGES}.get(
            self.path, BODY
        )
        try:
            self.wfile.write(body)
        except ConnectionError:
            pass
        self.close_connection = True

    def log_message(self, *arguments):
        pass


released = threading.Event()


@contextmanager
def loopback():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    Handler.requests = 0
    released.clear()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        released.set()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with loopback() as address:
        yield address


@pytest.mark.parametrize("page", ["/good", "/unknown-length"])
def test_download_once(server, tmp_path, page, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    path = tmp_path / "cache" / "text.txt"
    for _ in range(2):
        download(server + page, path, SHA256, len(BODY))
        assert path.read_bytes() == BODY
    assert Handler.requests == 1  # the second time it is there
    assert [entry.name for entry in path.parent.iterdir()] == ["text.txt"]
    assert "text.txt: 100%" in capsys.readouterr().err  # the bar


@pytest.mark.parametrize("before", [None, b"an older one"])
@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("/none", "the server answered 404 Not Found"),
        ("/wrong", "it is not the file expected (size or SHA-256 differ)"),
        ("/cut", f"the connection was cut after 100000 of {len(BODY)} bytes"),
        ("/silent", "timed out"),
    ],
)
def test_failed_downloads_leave_nothing(server, tmp_path, page, message, before):
    path = tmp_path / "text.txt"
    if before:
        path.write_bytes(before)
    with pytest.raises(OSError) as error:
        download(server + page, path, SHA256, len(BODY), timeout=0.5 if page == "/silent" else 20)
    assert str(error.value) == f"cannot download {server}{page}: {message}"
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == ({"text.txt": before} if before else {})


def test_a_file_longer_than_expected(server, tmp_path):
    with pytest.raises(OSError, match=r"it is not the file expected \(size or SHA-256 differ\)$"):
        download(server + "/unknown-length", tmp_path / "text.txt", SHA256, len(BODY) - 5)
    assert list(tmp_path.iterdir()) == []


def test_no_network(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1,nowhere.invalid")
    with socket.socket() as closed:  # bound and not listening: refused
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/text"
        with pytest.raises(OSError) as error:
            download(url, tmp_path / "cache" / "text.txt", SHA256, len(BODY))
    assert str(error.value).startswith(f"cannot download {url}: ")
    assert "Connection refused" in str(error.value)
    assert "\n" not in str(error.value)

    def no_name(*arguments, **options):
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", no_name)
    with pytest.raises(OSError, match=r"^cannot download http://nowhere.invalid/: .*name resolution$"):
        download("http://nowhere.invalid/", tmp_path / "cache" / "text.txt", SHA256, len(BODY))
    assert list(tmp_path.iterdir()) == []


def test_a_cached_file_that_was_changed_is_fetched_again(server, tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(BODY[:-1] + b"?")
    download(server + "/good", path, SHA256, len(BODY))
    assert path.read_bytes() == BODY


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GPN_REF_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == tmp_path / "home" / ".cache" / "gpn_ref"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "gpn_ref"
    monkeypatch.setenv("GPN_REF_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"


def test_shakespeare(server, tmp_path, monkeypatch):
    assert corpora.SHAKESPEARE["sha256"] == "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
    assert corpora.SHAKESPEARE["size"] == 1_115_394
    monkeypatch.setenv("GPN_REF_CACHE", str(tmp_path))
    source = {"url": server + "/good", "sha256": SHA256, "size": len(BODY)}
    monkeypatch.setattr(corpora, "SHAKESPEARE", source)
    corpus = load_corpus("shakespeare")
    assert corpus.name == "shakespeare"
    assert "".join(corpus.train + corpus.validation) == BODY.decode()
    assert corpus.train[0].startswith("First Citizen:\nBefore we proceed")
    assert all(document.startswith("First Citizen:") for document in corpus.train + corpus.validation)
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny-shakespeare.txt"]


def test_lambada(server, tmp_path, monkeypatch):
    assert corpora.LAMBADA["url"] == "https://openaipublic.blob.core.windows.net/gpt-2/data/lambada_test.jsonl"
    assert corpora.LAMBADA["sha256"] == "4aa8d02cd17c719165fc8a7887fddd641f43fcafa4b1c806ca8abc31fabdb226"
    assert corpora.LAMBADA["size"] == 1_819_752
    monkeypatch.setenv("GPN_REF_CACHE", str(tmp_path))
    source = {"url": server + "/lambada", "sha256": hashlib.sha256(PASSAGES).hexdigest(), "size": len(PASSAGES)}
    monkeypatch.setattr(corpora, "LAMBADA", source)
    for _ in range(2):
        assert lambada() == tmp_path / "lambada_test.jsonl"
        assert lambada().read_bytes() == PASSAGES
    assert Handler.requests == 1  # then it is there
    tokenizer = load_tokenizer(DATA / "stories" / "tokenizer.ranks")
    questions, faults = read_questions(lambada(), tokenizer)
    words = [encode(tokenizer, word) for word in (" kite", " Gabriel", " Ben")]
    assert [question.answer for question in questions] == words * 20 + [encode(tokenizer, " cat")]
    assert [question.distance for question in questions[:2]] == [8, None]  # after: , and Ann and Kate took the
    assert (len(questions), faults) == (61, {"malformed (not JSON)": [61], "empty": [62]})
