"""Plants the faults of one file of CUDA, a table of planted_faults.py, and says which of them the equality misses.

    NUMBA_ENABLE_CUDASIM=1 PYTHONPATH=COPY:tests python tests/fast/cuda/simulator/faults.py COPY [FILE]

COPY holds a copy of the package, in which the lines are replaced. Prints a JSON list of the faults that were missed.
Without a FILE there is no fault, and the equality must hold.
"""

import ast
import importlib
import json
import os
import sys
from pathlib import Path

import numpy as np
from fast.cpu.test_equality import calm
from fast.cuda.simulator import turns
from planted_faults import CUDA
from strategies import assert_equal, largest_difference, point, results

from gpn_ref import GDNConfig, TrainConfig, load_model
from gpn_ref.config import ModelConfig
from gpn_ref.random_state import generator

DEEP = ModelConfig(11, 5, 6, 7, n_heads=2, d_key=5, d_value=7, n_layers=2, decode_bias=True)
SHALLOW = ModelConfig(11, 5, 6, 7, n_heads=2, d_key=4, d_value=5, decay_first=True)
BARE = ModelConfig(11, 5, 6, 7)
GDN = GDNConfig(vocab_size=7, d_model=6, n_layers=1, n_heads=2, d_key=4, d_value=5, d_ffn=7)
CAUGHT = (AssertionError, ValueError, IndexError, RuntimeError)  # what does not run is as plain as what is not equal


def planted(text, function, lines, replacement):
    """The text with these lines of this function replaced by one."""
    [body] = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef) and node.name == function]
    before, wanted = text.split("\n"), lines.split("\n")
    n = len(wanted)
    places = [
        i for i in range(body.lineno, body.end_lineno - n + 1) if [line.strip() for line in before[i : i + n]] == wanted
    ]
    assert len(places) == 1, f"{function}: the line {lines!r} is there {len(places)} times"
    indent = before[places[0]][: len(before[places[0]]) - len(before[places[0]].lstrip())]
    after = "\n".join(before[: places[0]] + [indent + replacement] + before[places[0] + n :])
    ast.parse(after)
    return after


def lively(at):
    """Half of the decays are slow, and the other half fast."""
    at = calm(at)
    biases = {
        name: value + 6 * (np.arange(len(value)) % 2) for name, value in at.params.items() if "decay.bias" in name
    }
    return at._replace(params=at.params | biases)


def whole(config, batch, length, own=False, backwards=False):
    """All outputs and gradients are the reference's."""
    at = lively(point(config, 0, batch, length))
    exact = results("numpy", config, at)

    def check():
        turns.BACKWARDS = backwards
        os.environ["GPN_REF_PRODUCTS"] = "own" if own else "numpy"
        from gpn_ref.fast.cuda.card import SMALL, the_card

        the_card().tuning = SMALL._replace(logits=4 * config.vocab_size)  # of four tokens at a time
        assert_equal(results("cuda", config, at), exact, np.float64)

    return check


def trained(backend):
    """Losses, norms and arrays of a learner: clipped and in parts, with a step that overflows, and after loading."""
    at, config = lively(point(SHALLOW, 0)), TrainConfig(bptt=2, accumulation=2, clip_norm=0.5, epsilon=1e-4)
    learner, losses = load_model(SHALLOW, backend).learner(at.params, config), []
    tokens = generator(0, "tokens").integers(0, 11, (3, 2, 4))
    loud = at.params | {"decode.proj.weight": 1e308 * at.params["decode.proj.weight"]}

    def step(i):
        turns.BACKWARDS = i == 1
        losses.append(learner.step(tokens[i, :, :-1], tokens[i, :, 1:], 0.1))

    for i in (0, 1, 2):
        step(i)
    params, state = learner.params(), learner.state()
    learner.load(loud, state)
    step(0)
    assert not np.isfinite(losses.pop()).all()
    kept = learner.params()
    learner.load(params, state)
    step(1)
    arrays = learner.params() | learner.state() | {f"kept {name}": value for name, value in kept.items()}
    return arrays | {"losses": np.array(losses)}


def learns():
    """The learner's steps are the reference's."""
    expected = trained("numpy")

    def check():
        from gpn_ref.fast.cuda.card import SMALL, the_card

        the_card().tuning = SMALL._replace(blocks=5)  # more than a block has threads
        found = trained("cuda")
        for name, value in expected.items():
            assert largest_difference(found[name], value) < 1e-9, name

    return check


with np.errstate(all="ignore"):
    CHECKS = {
        "whole": whole(DEEP, 2, 3),
        "shallow": whole(SHALLOW, 1, 2),
        "bare": whole(BARE, 2, 2),
        "learner": learns(),
        "GDN": whole(GDN, 2, 3),
        "own products": whole(SHALLOW, 2, 3, own=True),
        "backwards": whole(DEEP, 2, 3, backwards=True),
    }
FIRST = {"products": "own products", "delta": "GDN"}  # what is likeliest to catch the faults of a file or function
FIRST |= dict.fromkeys(("training", "layout", "start_from_zero", "go_on_from", "block_max"), "learner")
FIRST |= dict.fromkeys(("add_loss", "squares_of", "clip_of", "adamw"), "learner")


def forget():
    """The next import of the CUDA path is from the files as they are then."""
    for name in [name for name in sys.modules if name.startswith("gpn_ref.fast.cuda")]:
        del sys.modules[name]
    importlib.invalidate_caches()


def is_caught(first):
    importlib.import_module("gpn_ref.fast.cuda.engine")
    importlib.import_module("gpn_ref.fast.cuda.delta")
    turns.install()
    for name in sorted(CHECKS, key=lambda name: name != first):
        try:
            CHECKS[name]()
        except CAUGHT:
            return True
    return False


def main(package, file=None):
    sys.dont_write_bytecode = True
    missed, folder = [], Path(package) / "gpn_ref" / "fast" / "cuda"
    with np.errstate(all="ignore"):
        if not file and is_caught(None):
            sys.exit("there is no fault, and it is caught")
        for _, function, line, replacement in [fault for fault in CUDA if fault[0] == file]:
            target = folder / f"{file}.py"
            original = target.read_text(encoding="utf-8")
            target.write_text(planted(original, function, line, replacement), encoding="utf-8")
            forget()
            if not is_caught(FIRST.get(function, FIRST.get(file))):
                missed.append(f"{file}.{function}: {line} -> {replacement}")
            target.write_text(original, encoding="utf-8")
    print(json.dumps(missed))


if __name__ == "__main__":
    main(*sys.argv[1:])
