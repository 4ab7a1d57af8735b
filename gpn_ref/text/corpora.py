"""Where text comes from: the stories that ship, Python's documentation, tiny Shakespeare, any text file."""

import ast
import hashlib
import json
import sysconfig
import warnings
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from gpn_ref.cli import unknown
from gpn_ref.files import DATA, read_text
from gpn_ref.text.download import cache_folder, download

DOCUMENT = 4000  # characters; a longer text is cut into documents
SHAKESPEARE = {
    "url": "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    "sha256": "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    "size": 1_115_394,  # bytes
}
LAMBADA = {
    "url": "https://openaipublic.blob.core.windows.net/gpt-2/data/lambada_test.jsonl",
    "sha256": "4aa8d02cd17c719165fc8a7887fddd641f43fcafa4b1c806ca8abc31fabdb226",
    "size": 1_819_752,  # bytes
}
NOT_THE_LIBRARY = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}


@dataclass(frozen=True)
class Corpus:
    """Documents to train and to validate on, and a cloze set where the corpus has one."""

    name: str
    train: list[str]
    validation: list[str]
    cloze: list[dict] | None = None


def load_corpus(name="stories", text_files=()):
    """The corpus of that name, one of CORPORA, or made of `text_files`; then `name` is what it is called.

    An unknown name, or a file that is not there or holds no text, is a ValueError or OSError of one line.
    """
    if text_files:
        return read_files(name, text_files)
    if name not in CORPORA:
        raise ValueError(unknown("corpus", name, list(CORPORA)))
    return CORPORA[name]()


def stories(folder=DATA / "stories"):
    """The stories that ship, a document each, with their cloze set."""
    train, validation = (
        [story.strip() for story in read_text(folder / file).split("\n\n") if story.strip()]
        for file in ("train.txt", "validation.txt")
    )
    cloze = [json.loads(line) for line in read_text(folder / "cloze.jsonl").splitlines()]
    return Corpus("stories", train, validation, cloze)


def python_docs(library=None):
    """English that every Python has: the topics of `help()` and the docstrings of the standard library.

    A document is a topic, or all docstrings of a module, or a part of these; nothing comes twice. The files
    are parsed, never run. One document in twenty, chosen by its hash, is for validation.
    """
    library = Path(library or sysconfig.get_path("stdlib"))
    documents, seen = [], set()
    for texts in [*_topics(library), *_docstrings(library)]:
        fresh = [text for text in dict.fromkeys(texts) if text not in seen]
        seen.update(fresh)
        documents += split_documents("\n\n".join(fresh))
    parts = {True: [], False: []}
    for document in documents:
        parts[hashlib.sha256(document.encode()).digest()[0] % 20 == 0].append(document)
    return Corpus("python-docs", train=parts[False], validation=parts[True])


def shakespeare():
    """Karpathy's tiny Shakespeare, downloaded at its first use."""
    path = cache_folder() / "tiny-shakespeare.txt"
    download(path=path, **SHAKESPEARE)
    return read_files("shakespeare", [path])


def lambada():
    """The file of LAMBADA's passages, JSON lines, as it was used for GPT-2; downloaded at its first use."""
    path = cache_folder() / "lambada_test.jsonl"
    try:
        download(path=path, **LAMBADA)
    except OSError as error:
        error.add_note("a copy of it that is here already can be given by its name")
        raise
    return path


def read_files(name, paths):
    """Any UTF-8 text. The last five to ten percent of each file, whole paragraphs, are for validation."""
    train, validation = [], []
    for path in paths:
        text = _text_of(path)
        border = _border(text, len(text) * 18 // 20, len(text) * 19 // 20)
        train += split_documents(text[:border])
        validation += split_documents(text[border:])
    return Corpus(name, train, validation)


def whole_files(paths):
    """Any UTF-8 text to look at only: all of each file is for validation."""
    documents = [document for path in paths for document in split_documents(_text_of(path))]
    return Corpus(", ".join(map(str, paths)), train=[], validation=documents)


def _text_of(path):
    text = read_text(path)
    if not text.strip():
        raise ValueError(f"{path} holds nothing but white space")
    return text


def split_documents(text, size=DOCUMENT):
    """Cut a text between paragraphs, else lines, else words, into documents of at most `size` characters.

    Joined again they are the text. All but the last have more than half of `size`.
    """
    borders = [0]
    while borders[-1] + size < len(text):
        borders.append(_border(text, borders[-1] + size // 2, borders[-1] + size))
    return [text[begin:end] for begin, end in zip(borders, [*borders[1:], len(text)], strict=True) if begin < end]


def _border(text, first, last):
    """The last place after `first` and up to `last` that ends a paragraph, else a line, else a word."""
    for mark in ("\n\n", "\n", " "):
        if (found := text.rfind(mark, first, last)) >= 0:
            return found + len(mark)
    return last


def _topics(library):
    """Each topic of `help()`, as a list of one text."""
    path = library / "pydoc_data" / "topics.py"
    if not path.is_file():
        raise FileNotFoundError(f"python-docs needs the sources of Python's library, but there is no {path}")
    assigned = next(node for node in _parse(path).body if isinstance(node, ast.Assign))
    return [[text] for text in ast.literal_eval(assigned.value).values()]


def _docstrings(library):
    """The docstrings of each module of the library, in the order of the files' names."""
    paths = [path for path in library.rglob("*.py") if NOT_THE_LIBRARY.isdisjoint(path.relative_to(library).parts)]
    for path in tqdm(sorted(paths), desc="reading the library", unit=" files", disable=None, leave=False):
        yield list(_docstrings_in(_parse(path)))


def _docstrings_in(node):
    if text := ast.get_docstring(node):
        yield text.encode("utf-8", "replace").decode()  # an escape can name half a surrogate pair
    for inner in node.body:
        if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _docstrings_in(inner)


def _parse(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old escapes in strings
        try:
            return ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):  # a template, or a sample of bad code
            return ast.Module(body=[], type_ignores=[])


CORPORA = {"stories": stories, "python-docs": python_docs, "shakespeare": shakespeare}
