"""The inside of the sandbox: a process that runs one function of a submission, and sends back what it returns.

`lessons/sandbox.py` starts it by its path with `python -I -S`, so that it can import nothing of this repository but
what an exercise may. The submission shares this process and can change all that is in it: so nothing here knows a
right answer, and the other side believes nothing that it is sent. Who wants to break out of a Python process can; what
is refused here are the ways that need no such effort.

Lines of JSON go both ways. Values travel as JSON types, without pickle: `pack` and `unpack`.
"""

import ast
import base64
import builtins
import importlib.util
import json
import linecache
import math
import os
import signal
import sys
import time
import types
from collections import namedtuple
from contextlib import suppress

if __name__ == "__main__":  # all that -I -S leaves out and is needed: the folder that NumPy is in
    sys.path.append(sys.argv[1])

import numpy as np

LONGEST = 16_000_000  # bytes of an array, or letters of a line
LARGEST = 2**63 - 1  # whole number
MANY = 100_000  # things in a list; of a dict or a set, whose members may be chosen to collide, a hundredth
ALWAYS = ("numpy", "math", "__future__")


# ------------------------------------------------------------------------------------------------ values as JSON
class Unsendable(TypeError):
    """The value, or one inside it, is nothing that an exercise asks for; the message names it: "a generator"."""


def pack(value, functions=(), depth=0):
    """The value as JSON types; a function as its place in `functions`, to which a list is extended."""
    if depth > 8:
        raise Unsendable("something nested too deeply")
    if type(value) is int and abs(value) > LARGEST:
        raise Unsendable("a whole number of more than 64 bits")
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is complex:
        return {"complex": [value.real, value.imag]}
    if type(value) is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, np.generic | np.ndarray):
        return _pack_array(value)
    if type(value) in (dict, set, frozenset) and len(value) > MANY / 100:
        raise Unsendable(f"a {type(value).__name__} of {len(value):,}")
    for kind in (list, tuple, set, frozenset):
        if type(value) is kind:
            return {kind.__name__: _pack_all(value, functions, depth)}
    if type(value) is dict:
        return {"dict": [_pack_all(pair, functions, depth) for pair in value.items()]}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {"named": [type(value).__name__, list(value._fields), _pack_all(value, functions, depth)]}
    for number, function in enumerate(functions):
        if function is value:
            return {"function": number}
    if "numpy.random" in sys.modules and type(value) is np.random.Generator:
        return {"random": value.bit_generator.state}
    if callable(value) and isinstance(functions, list):
        functions.append(value)
        return {"function": len(functions) - 1}
    name = type(value).__name__
    raise Unsendable(f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name:.60}")


def _pack_all(values, functions, depth):
    if len(values) > MANY:
        raise Unsendable(f"{len(values):,} things")
    return [pack(value, functions, depth + 1) for value in values]


def _pack_array(value):
    if value.dtype.kind not in "biufc":
        raise Unsendable(f"an array of type {value.dtype}")
    if value.nbytes > LONGEST:
        raise Unsendable(f"an array of {value.nbytes:,} bytes")
    kind = "array" if isinstance(value, np.ndarray) else "number"
    plain = np.ndarray.view(value, np.ndarray) if kind == "array" else np.asarray(value)
    return {kind: [plain.dtype.str, list(plain.shape), base64.b64encode(plain.tobytes()).decode()]}


def unpack(packed, functions=(), trusted=True):
    """The value that was packed; whatever else it is given, it raises some Exception and does nothing.

    What comes from a submission is not `trusted`: no classes are made for it, a named tuple is a plain one.
    """
    if type(packed) is int and abs(packed) > LARGEST:
        raise ValueError("a whole number of more than 64 bits")
    if packed is None or type(packed) in (bool, int, float, str):
        return packed
    [(kind, content)] = packed.items()
    if kind == "complex":
        return complex(*content)
    if kind == "bytes":
        return base64.b64decode(content)
    if kind in ("array", "number"):
        dtype, shape, data = content
        dtype = np.dtype(str(dtype)[:4])
        if dtype.kind not in "biufc":
            raise ValueError(f"an array of type {dtype}")
        array = np.frombuffer(base64.b64decode(data), dtype).reshape(shape).copy()
        return array if kind == "array" else array[()]
    if kind in ("list", "tuple", "set", "frozenset"):
        if not trusted and "set" in kind and len(content) > MANY / 100:
            raise ValueError(f"a {kind} of {len(content):,}")
        return getattr(builtins, kind)(unpack(item, functions, trusted) for item in content)
    if kind == "dict":
        if not trusted and len(content) > MANY / 100:
            raise ValueError(f"a dict of {len(content):,} keys")
        return {unpack(key, functions, trusted): unpack(value, functions, trusted) for key, value in content}
    if kind == "named":
        name, fields, values = content
        make = namedtuple(name, fields)._make if trusted else tuple
        return make(unpack(value, functions, trusted) for value in values)
    if kind == "function":
        return functions[content]
    if kind == "random":
        random = np.random.default_rng()
        random.bit_generator.state = content
        return random
    raise ValueError(f"{kind!r:.60} is no kind of value")


# ------------------------------------------------------------------------------------------------ what it may import
def may_import(name, allowed):
    return any(name == some or name.startswith(f"{some}.") for some in (*ALWAYS, *allowed))


def refused_name(module, names, allowed):
    """What `import module`, or `from module import names`, imports that the exercise may not; None if it may all."""
    if may_import(module, allowed):
        return None
    refused = [name for name in names or () if not may_import(f"{module}.{name}", allowed)]
    if names and not refused:
        return None
    some = any(name.startswith(f"{module}.") for name in allowed)  # the module is known: it is the name that is wrong
    return f"{module}.{refused[0]}" if some and refused else module


def refused_import(tree, allowed):
    """The first import in the source that the exercise may not do, and its line; None without one."""
    for node in ast.walk(tree):
        found = None
        if isinstance(node, ast.Import):
            found = next(filter(None, (refused_name(alias.name, (), allowed) for alias in node.names)), None)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found = refused_name(module, [alias.name for alias in node.names], allowed)
        elif isinstance(node, ast.Name) and node.id == "__import__":
            found = "by __import__"
        if found:
            return f"imports {found} (line {node.lineno})"
    return None


def guarded_builtins(allowed, refuse):
    """The builtins of a submission: those of Python, with an `import` that refuses what the exercise may not."""
    real = builtins.__import__
    if "numba" in sys.modules:  # which runs code of its own among the submission's names
        allowed = (*allowed, "numba")

    def guarded_import(name, globals=None, locals=None, fromlist=(), level=0):
        # C code imports in the name of its caller, and gives a list: `warnings`, when NumPy has one to give.
        from_c = isinstance(fromlist, list) and name.partition(".")[0] not in ("gpn_ref", "lessons")
        found = not from_c and refused_name("." * level + name, fromlist or (), allowed)
        if found:
            refuse(f"imports {found}")
        return real(name, globals, locals, fromlist, level)

    def breakpoint(*arguments, **keywords):
        raise RuntimeError("nobody is here to answer a breakpoint: print what you want to see")

    others = {"__import__": guarded_import, "breakpoint": breakpoint, "exit": sys.exit, "quit": sys.exit}  # -S has none
    return vars(builtins) | others


def load(allowed, files):
    """Import what the exercise may import, so that later it needs no file.

    files: module -> file, of those of the repository, which are on no path. A package finds what is in its folder; one
    that is not among them, of a module that is, is empty.
    """
    for name, file in files.items():
        package = name.rpartition(".")[0]
        if package and package not in files:
            sys.modules.setdefault(package, types.ModuleType(package)).__path__ = []
        folders = [os.path.dirname(file)] if file.endswith("__init__.py") else None
        spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=folders)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    for name in allowed:
        try:
            importlib.import_module(name)
        except ImportError:  # a name inside a module
            importlib.import_module(name.rpartition(".")[0])
    sys.modules.setdefault("charset_normalizer", None)  # which numpy.f2py does without if it is not there
    for name in LATE:  # what NumPy loads when it is first asked for, and extensions of Python that it needs for that
        with suppress(ImportError):
            importlib.import_module(name)
    if "numba" in sys.modules:  # what it loads for its first compilation takes seconds
        sys.modules["numba"].njit(lambda x: x + x)(1.0)
    else:  # which knows np.empty by what it is
        np.empty, np.empty_like = spoiled(np.empty), spoiled(np.empty_like)


def spoiled(empty):
    """np.empty with numbers in it that are no answer, for what it finds in memory is sometimes just that: zeros."""

    def spoiled_empty(*arguments, **keywords):
        array = empty(*arguments, **keywords)
        if array.dtype.kind in "iufc":
            array.fill(np.nan if array.dtype.kind in "fc" else np.iinfo(array.dtype).max)
        return array

    return spoiled_empty


# ------------------------------------------------------------------------------------------------ what it may do
EVENTS = """_thread. cpython. ctypes. fcntl. ftplib. gc. mmap. os. pty. resource. shutil. signal. socket. sqlite3.
            subprocess. tempfile. urllib. webbrowser.""".split()
HARMLESS = ("os.listdir", "os.scandir", "os.putenv", "os.unsetenv")
LATE = ["_struct", *(f"numpy.{name}" for name in "random testing fft polynomial ma lib.stride_tricks typing".split())]
UNHEARD = {  # modules -> calls that tell no hook of what they do, or would undo what is set here
    "_posixsubprocess subprocess": "fork_exec _fork_exec",
    "_thread threading": "start_new_thread start_new _start_new_thread",
    "_imp": "create_builtin",  # modules anew
    "os posix": """mkfifo mknod pidfd_open chroot nice setpriority sched_setaffinity sched_setscheduler sched_setparam
                   setuid setgid""",
    "signal _signal": "signal setitimer alarm siginterrupt pthread_sigmask pidfd_send_signal",
}


def watch(folders, compiles):
    """From now on, a file that is opened for writing, or is neither Python's own nor in the folders, a process, a
    thread, and a connection are a PermissionError. What compiles, numba, may call C through ctypes."""
    denied = tuple(event for event in EVENTS if not (compiles and event in ("ctypes.", "gc.")))
    folders, library = with_links(folders), with_links([os.path.dirname(os.__file__)])
    others = tuple(place + name + os.sep for place in library for name in ("site-packages", "dist-packages"))
    numpy_only = "" if compiles else with_links([os.path.dirname(np.__file__)])
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    # All that the hook calls is its own: what a submission may put in place of it is not asked.
    text, begins, refusal, harmless = str, str.startswith, PermissionError, frozenset(HARMLESS)

    def hook(event, arguments):
        if event == "open":
            path, mode, flags = arguments
            place = path if path.__class__ is text and "/../" not in path else ""  # an object may change its mind
            welcome = begins(place, folders) or begins(place, library) and not begins(place, others)
            if not welcome or (flags & writing if mode is None else "w" in mode or "a" in mode or "+" in mode):
                raise refusal(f"an exercise may not open {path!r:.200}")
        elif begins(event, denied) and event not in harmless:
            raise refusal(f"an exercise may not call {event}")
        elif event == "import" and arguments[1] is not None and not begins(arguments[1], numpy_only):
            raise refusal(f"an exercise may not import {arguments[0]}")  # an extension: C opens files unheard

    def refusing(what):
        def refuse(*arguments, **keywords):
            raise PermissionError(f"an exercise may not call {what}")

        return refuse

    for modules, functions in UNHEARD.items():
        for module in modules.split():
            with suppress(ImportError):  # on Windows
                importlib.import_module(module)
            for function in functions.split():
                if hasattr(sys.modules.get(module), function):
                    setattr(sys.modules[module], function, refusing(f"{module}.{function}"))
    sys.addaudithook(hook)


def with_links(folders):
    """How names of files in the folders begin, whether or not links on the way were followed."""
    return tuple({how(folder) + os.sep for folder in folders for how in (os.path.abspath, os.path.realpath)})


def limit(seconds, memory):
    """Limits that the system keeps -> the names of those that it doesn't have."""
    with suppress(AttributeError):  # on Windows
        signal.setitimer(signal.ITIMER_REAL, seconds + 5)  # for the case that the other side is no more
    try:
        import resource
    except ImportError:  # Windows
        return ["memory", "processor time", "processes"]
    until = math.ceil(time.process_time() + seconds) + 2  # the other side stops it before
    wanted = {
        "files": ("RLIMIT_FSIZE", 0),
        "cores": ("RLIMIT_CORE", 0),
        "processes": ("RLIMIT_NPROC", 0),
        "processor time": ("RLIMIT_CPU", until),
        "memory": ("RLIMIT_AS", address_space() + memory),
    }
    missing = ["memory"] if sys.platform == "darwin" else []  # which accepts the limit and does not keep it
    for name, (key, value) in wanted.items():
        try:
            number = getattr(resource, key)
            hard = resource.getrlimit(number)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(number, (value, value))
        except (AttributeError, OSError, ValueError):
            missing.append(name)
    return missing


def address_space():
    """Bytes of address space that this process has already: NumPy takes some hundred megabytes."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 2**30


# ------------------------------------------------------------------------------------------------ the conversation
class Line:
    """The pipe to the other side: numbers of descriptors that the submission was never given."""

    def __init__(self):
        self.answers, questions = os.dup(1), os.dup(0)
        self.questions = open(questions, "rb")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)  # what the submission prints

    def send(self, message, dumps=json.dumps, write=os.write):
        data = dumps(message).encode() + b"\n"
        if len(data) > 4 * LONGEST:
            raise Unsendable("too much")
        while data:
            data = data[write(self.answers, data) :]

    def receive(self, loads=json.loads):
        return loads(self.questions.readline())


def asking(line, number):
    """A function of the other side, as the submission calls it."""

    def function(*arguments, **keywords):
        line.send({"call": number, "arguments": pack(arguments), "keywords": pack(keywords)})
        reply = line.receive()
        if "error" in reply:
            raise ValueError(reply["error"])
        return unpack(reply["result"])

    return function


def told(error, filename):
    """An exception as [its type, its message, the line of the submission that it comes from, in which function]."""
    place, traceback = (0, ""), error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == filename:
            place = (traceback.tb_lineno, traceback.tb_frame.f_code.co_name)
        traceback = traceback.tb_next
    if isinstance(error, SyntaxError) and error.filename == filename:
        place = (error.lineno or 0, "")
        error = type(error)(error.msg)
    name = message = ""
    with suppress(BaseException):
        name = "MemoryError" if isinstance(error, MemoryError) else str(type(error).__name__)[:100]
        message = str(str(error))[:1000]
    return [name, message, *place]


def found_function(line, job):
    """The function of the submission, which is run for it; None where there is none, which is told."""
    source, filename, allowed = job["source"], job["filename"], job["allowed"]
    lines = [f"{text}\n" for text in source.split("\n")]
    linecache.cache[filename] = (len(source), None, lines, filename)  # for warnings
    room, _, maker = job["made_by"].rpartition(".")
    make = getattr(sys.modules[room], maker) if room else None

    def refuse(what):
        line.send({"refused": what})
        os._exit(0)

    try:
        tree = ast.parse(source, filename)
        if found := refused_import(tree, allowed):
            refuse(found)
        module = types.ModuleType("submission")
        module.__builtins__ = guarded_builtins(allowed, refuse)
        sys.modules[module.__name__] = module
        exec(compile(tree, filename, "exec"), vars(module))
        function = vars(module).get(job["function"])
    except BaseException as error:
        line.send({"broken": told(error, filename)})
        return None
    if not callable(function):
        line.send({"missing": True})
        return None
    private = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr[0] == "_"]
    if make and private:
        what = f"{private[0].attr}: names that begin with _ are none of a kernel's"
        line.send({"broken": ["AttributeError", what, private[0].lineno, ""]})
        return None
    if make and not hasattr(function, "function"):
        line.send({"broken": ["TypeError", f"{job['function']} is not made by @{maker}", 0, ""]})
        return None
    function = make(function.function) if make else function  # anew: it may have been made into something else
    line.send({"calls": sorted(names_in(getattr(function, "__code__", None), vars(module)))})
    return function


def names_in(code, of_module, seen=()):
    """The names that code uses, in functions inside of it and in those of its module that it uses, too."""
    if not isinstance(code, types.CodeType) or code in seen:
        return set()
    names, seen = set(code.co_names), (*seen, code)
    inside = [*code.co_consts, *(getattr(of_module.get(name), "__code__", None) for name in code.co_names)]
    return names.union(*(names_in(part, of_module, seen) for part in inside))


def answer(line, function, arguments, functions, filename):
    """Call the function once, and tell what it returned, or raised."""
    try:
        value = function(*arguments)
    except BaseException as error:
        line.send({"raised": told(error, filename)})
        return
    try:
        line.send({"answer": pack(value), "after": pack(arguments, functions)})
    except Unsendable as problem:
        line.send({"garbage": str(problem)})
    except MemoryError:
        raise
    except BaseException:
        line.send({"garbage": "something that can't be looked at"})


def main():
    line = Line()
    job = line.receive()
    load(job["allowed"], job["files"])
    functions = tuple(asking(line, number) for number in range(job["functions"]))
    cases = [unpack(case, functions) for case in job["cases"]]
    missing = limit(job["seconds"], job["memory"])
    watch(job["folders"], "numba" in sys.modules)
    line.send({"ready": missing})
    try:
        if (function := found_function(line, job)) is not None:
            for arguments in cases:
                answer(line, function, arguments, functions, job["filename"])
    except MemoryError:
        os.write(line.answers, b'{"raised": ["MemoryError", "", 0, ""]}\n')
    os._exit(0)  # whatever threads are left


if __name__ == "__main__":
    main()
