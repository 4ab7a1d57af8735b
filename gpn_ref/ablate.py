"""Is it causal? Take something away inside a trained model, and see what becomes of its loss and of its answers.

Taken away are the mean state, before decoding and before grounding; the fast and the slow heads of the memory, each
beside as many random heads; and all that the memory holds, so many tokens ago. --decode-bias trains a decoder bias in.
Each change is compared with the unchanged model on the same tokens, with 95 % intervals over sequences. The answers are
those of the corpus: the last words of its cloze passages, or the values of the recall task.
"""

from dataclasses import replace

import numpy as np
from tqdm import tqdm

from gpn_ref import cli, random_state
from gpn_ref.blas import blas_threads
from gpn_ref.figures import shown
from gpn_ref.files import write_json
from gpn_ref.inspect import ablation_figures, ablations
from gpn_ref.inspect import ablation_report as report
from gpn_ref.inspect.decoder_bias import SHARE, with_and_without
from gpn_ref.inspect.horizons import FAST, is_fast
from gpn_ref.parameters import count_params
from gpn_ref.trained import Trained, add_arguments
from gpn_ref.training.tasks import TextTask

PROG = "python -m gpn_ref.ablate"
EXAMPLES = """examples:
  python -m gpn_ref.ablate
  python -m gpn_ref.ablate runs/stories-gpn+m --decode-bias
  python -m gpn_ref.ablate runs/recall-gpn+m --draws 8 --out somewhere
"""


def parser():
    parser = cli.Parser(prog=PROG, description=__doc__, epilog=EXAMPLES)
    add_arguments(parser, "ablate")

    def add_integer(flag, default, text, **more):
        parser.add_argument(flag, type=cli.integer(1), default=default, metavar="N", help=text, **more)

    what = "look at this UTF-8 file instead of the run's validation text; again for more"
    parser.add_argument("--text", type=cli.path, action="append", metavar="FILE", help=what)
    add_integer("--tokens", 2**15, "of text at most, but no less than one sequence (default 32,768)")
    add_integer("--window", None, "tokens of a sequence, 2 or more (default: as in training)")
    add_integer("--passages", 200, "of the cloze set, at most, evenly spaced (default 200)")
    add_integer("--draws", 4, "random sets of heads beside each pool, and random steps of clearing (default 4)")
    what = "train a decoder bias in, N steps (100 without N), and as many steps without it (default: don't)"
    add_integer("--decode-bias", None, what, nargs="?", const=100)
    parser.add_argument("--seed", type=cli.SEED, default=0, metavar="N", help="of all that is drawn (default 0)")
    return parser


def main(arguments=None):
    options = parser().parse_args(arguments)
    trained = Trained(options.run, options.backend, PROG)
    trained.require_a_gpn("ablate")
    task = trained.task(options.text or ())
    require_sensible(options, trained, task)
    out = trained.folder(options.out, "ablate")
    with blas_threads(count_params(trained.config)), np.errstate(all="ignore"):
        summary = measure(options, trained, task)
    try:
        files = ablation_figures.draw(summary, out)
        write_json(out / "summary.json", summary)
    finally:  # what was measured is told even where it can't be kept
        print(shown("\n".join(report.lines(summary))))
    print(f"\nfiles      {shown(out)}/: {', '.join(path.name for path in [out / 'summary.json', *files])}")
    return 0


def require_sensible(options, trained, task):
    """ValueError for flags that would have no effect, or tell nothing."""
    if options.window == 1:
        raise ValueError("--window 1 is too short to tell how long a head remembers; it must be 2 or more")
    if options.window and not isinstance(task, TextTask):
        raise ValueError("--window has no effect on the corpus recall; leave it out")
    if options.decode_bias and options.text:
        raise ValueError("--decode-bias trains on the run's own text; leave --text out")
    if options.decode_bias and trained.config.decode_bias:
        raise ValueError(f"{trained.path} has a decoder bias already; leave --decode-bias out")


def measure(options, trained, task):
    """All that is measured, as JSON types."""
    bound, n_heads, seed = trained.bound, trained.config.n_heads, options.seed
    text = ablations.text_rows(task, options.window or trained.checkpoint.train_config.window, options.tokens)
    questions = task.cloze_questions() if isinstance(task, TextTask) else []
    batches = text + ablations.passage_rows(questions, options.passages)
    mean, norm = ablations.mean_state(bound, text)
    with tqdm(total=0, desc="ablations", unit=" tokens", unit_scale=True, disable=None, leave=False) as bar:
        heads = pools(bound, text, n_heads, bar) if n_heads else None
        planned = plan(n_heads, heads, options.draws, seed)
        unchanged, differences, sizes = compare(bound, planned, batches, mean, n_heads, bar)
        clearing = clear(bound, batches, options.draws, seed, bar) if n_heads else None
    bias = second_training(options, trained, task, batches) if options.decode_bias else None
    summary = {
        "run": str(trained.path),
        "model": trained.describe(),
        "settings": {name: value for name, value in vars(options).items() if name not in ("run", "out")},
        "text": {"sequences": sum(len(rows.inputs) for rows in text), "tokens": tokens(text)},
        "questions": {"number": int(sizes[1].sum()), "of": "passages" if questions else "values"},
        "unchanged": ablations.effects(unchanged, sizes, seed),
        **length(mean, norm),
        "layers": trained.config.n_layers,
        "heads": heads,
        "changes": [found(row, differences, sizes, seed) for row in planned] + ([bias] if bias else []),
        "clearing": clearing,
    }
    report.add_sentences(summary)
    return summary


def pools(bound, text, n_heads, bar):
    """The 1/e life of each head on this text, and which are fast and which are slow."""
    extend(bar, tokens(text))
    lives = ablations.lives(bound, text, n_heads, bar.update)
    fast = is_fast(lives)
    return {
        "lives": [float(life) if np.isfinite(life) else None for life in lives],  # None: it forgets nothing
        "fast_below": FAST,
        "fast": np.flatnonzero(fast).tolist(),
        "slow": np.flatnonzero(~fast).tolist(),
    }


def plan(n_heads, heads, draws, seed):
    """The rows of the table: a group, what is done, the change by its key, and the keys of random sets beside it."""
    rows = [
        {"group": "mean state", "what": f"mean state removed {where}", "key": (where, None), "random": []}
        for where in ablations.MEAN_STATE
    ]
    for pool in ("fast", "slow") if heads else ():
        tested = tuple(heads[pool])
        sets = ablations.random_sets(n_heads, tested, draws, seed) if tested else []
        for kind, what in ablations.HEADS.items() if tested else ():
            row = {"group": f"{pool} heads", "what": f"{pool} heads {what}", "key": (kind, tested)}
            rows.append(row | {"random": [(kind, drawn) for drawn in sets]})
    return rows


def compare(bound, planned, batches, mean, n_heads, bar):
    """Each change of the plan once. -> sums of the unchanged model, differences by key, and sizes, (2, n) each."""
    changes = {}
    for kind, heads in dict.fromkeys(key for row in planned for key in (row["key"], *row["random"])):
        change = ablations.without_mean(mean, kind) if heads is None else ablations.without_heads(kind, heads, n_heads)
        changes[kind, heads] = ablations.changed(bound, change)
    extend(bar, tokens(batches) * (1 + len(changes)))
    unchanged, differences = ablations.compare(ablations.changed(bound), changes, batches, bar.update)
    return unchanged, differences, ablations.sizes(batches)


def found(row, differences, sizes, seed):
    """A row of the table with what was measured, as JSON types."""
    random = [ablations.effects(differences[key], sizes, seed) for key in row["random"]]
    return {
        "group": row["group"],
        "what": row["what"],
        **ablations.effects(differences[row["key"]], sizes, seed),
        "random": [{"heads": heads, **effects} for (_, heads), effects in zip(row["random"], random, strict=True)],
    }


def clear(bound, batches, draws, seed, bar):
    """What is lost with the memory, by lag, as JSON types."""
    random = random_state.generator(seed, "clearing the memory")
    steps = [ablations.clearing_steps(rows, draws, random) for rows in batches]
    extend(bar, sum(rows.inputs.size * (1 + len(lost)) for rows, lost in zip(batches, steps, strict=True)))
    starts = ablations.lag_starts(max(rows.inputs.shape[1] for rows in batches))
    sums, sizes = ablations.clear_memory(bound, batches, steps, starts, bar.update)
    longest = max(rows.inputs.shape[1] for rows in batches if rows.is_text) - 1
    ends = np.minimum([*(starts[1:] - 1), longest], longest)
    if not all(rows.is_text for rows in batches):
        answer_ends = starts  # before the end of a passage the memory is lost at CLEARINGS and nowhere between
    else:
        answer_ends = ends
    distance = np.concatenate([rows.distance for rows in batches])[:, None]  # (n, 1)
    mentioned = {"before": distance > starts, "since": distance <= starts}  # (n, L)
    return {
        "loss": curve(sums[0], sizes[0], starts, ends, seed),
        "accuracy": curve(sums[1], sizes[1], starts, answer_ends, seed),
        "mentioned": {
            name: {
                "all": ablations.effect((sums[1] * of).sum(axis=1), (sizes[1] * of).sum(axis=1), seed),
                "by_lag": curve(sums[1], sizes[1] * of, starts, answer_ends, seed),
            }
            for name, of in mentioned.items()
        },
    }


def curve(sums, sizes, first, last, seed):
    """The change in each group of lags in which there is any, as JSON types.  sums, sizes (n, L)."""
    groups = zip(first.tolist(), last.tolist(), sums.T, sizes.T, strict=True)
    return [{"from": a, "to": b, **ablations.effect(*of, seed)} for a, b, *of in groups if of[1].any()]


def second_training(options, trained, task, batches):
    """What a decoder bias changes, a row of the table: all against the control, as JSON types."""
    steps, seed, params = options.decode_bias, options.seed, trained.checkpoint.params
    train_config = replace(trained.checkpoint.train_config, seed=seed)
    with tqdm(total=2 * steps, desc="decoder bias", unit=" steps", disable=None, leave=False) as bar:
        control, biased = with_and_without(trained.model, params, train_config, task, steps, bar.update)
    forwards = {"bias": lambda inputs: biased.forward(inputs).logits}
    before, differences = ablations.compare(lambda inputs: control.forward(inputs).logits, forwards, batches)
    sizes, text = ablations.sizes(batches), [rows for rows in batches if rows.is_text]
    models = {
        name: ablations.effects(sums, sizes, seed) | length(*ablations.mean_state(bound, text))
        for name, sums, bound in (("control", before, control), ("bias", before + differences["bias"], biased))
    }
    moves = biased.decode(np.zeros(trained.config.d_state))  # (V) what the bias adds: of a zero state nothing is left
    return {
        "group": "decoder bias",
        "what": f"decoder bias trained in, {steps} steps",
        **ablations.effects(differences["bias"], sizes, seed),
        "random": [],
        "learning_rate": SHARE * train_config.learning_rate,
        "largest_move": float(abs(moves).max()),
        **models,
    }


def length(mean, norm):
    """The length of the mean state, and its share of a state's mean length, by name."""
    length = float(np.linalg.norm(mean))
    return {"mean_state": length, "share_of_norm": length / norm if norm else 0.0}


def tokens(batches):
    return sum(rows.inputs.size for rows in batches)


def extend(bar, more):
    """Let a progress bar expect so much more."""
    bar.total += more
    bar.refresh()


if __name__ == "__main__":
    cli.run(main, PROG)
