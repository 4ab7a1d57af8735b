"""Train a Grounded Prediction Network on text, from nothing to samples, in one command.

Without flags: the model with a memory, on the stories that ship, for about a minute. Everything goes
into a run directory, and --resume goes on from its newest checkpoint, as if never stopped, with the choices
that it began with. Ctrl-C finishes the step and saves; once more stops at once.

Exit status: 0 trained; 1 the loss or gradient is no longer finite; 2 bad input; 130 or 143 stopped by Ctrl-C
or SIGTERM.
"""

import json
import math
import sys
from itertools import count
from pathlib import Path

import numpy as np

from gpn_ref import cli
from gpn_ref.blas import blas_threads
from gpn_ref.config import DEFAULTS, PRESETS
from gpn_ref.files import atomic_write
from gpn_ref.measures import perplexity
from gpn_ref.model import BACKENDS
from gpn_ref.parameters import count_params
from gpn_ref.sizes import MODELS, choose_model
from gpn_ref.text.tokenizer import format_ranks, ranks_of
from gpn_ref.text.trigram import Trigram
from gpn_ref.training.experiment import LIMITS, new_experiment, restore_experiment
from gpn_ref.training.figure import draw_losses
from gpn_ref.training.interrupts import Interrupts
from gpn_ref.training.run_directory import InUse, RunDirectory, require_free
from gpn_ref.training.tasks import NAMES
from gpn_ref.training.trainer import Diverged, Trainer

PROG = "python -m gpn_ref.train_tiny"
EXAMPLES = """examples:
  python -m gpn_ref.train_tiny
  python -m gpn_ref.train_tiny --model gpn
  python -m gpn_ref.train_tiny --corpus python-docs --steps 200 --out runs/docs
  python -m gpn_ref.train_tiny --text book.txt --vocab-size 2048 --window-start any
  python -m gpn_ref.train_tiny --resume runs/docs
"""


def parser():
    parser = cli.Parser(prog=PROG, description=__doc__, epilog=EXAMPLES)

    def add(flag, kind, metavar, text, **more):
        default = DEFAULTS[flag.replace("-", "_")]
        shown = "" if default in (None, []) else f" (default {default})"
        parser.add_argument(f"--{flag}", type=kind, metavar=metavar, help=text + shown, **more)

    def add_integer(flag, text, **more):
        add(flag, cli.integer(*LIMITS[flag.replace("-", "_")]), "N", text, **more)

    def add_one_of(flag, names, metavar, text):
        add(flag, cli.one_of(flag.replace("-", " "), names), metavar, text)

    add_one_of("corpus", NAMES, "NAME", f"what to learn: {', '.join(NAMES)}")
    add("text", cli.path, "FILE", "learn these UTF-8 files instead", nargs="+")
    add_integer("vocab-size", "tokens of the tokenizer made for python-docs, shakespeare, --text")
    add_integer("recall-pairs", "recall: pairs of a key and a value a sequence")
    add_integer("recall-n-keys", "recall: different keys")
    add_integer("recall-n-values", "recall: different values; chance is 1 / N")
    add_integer("recall-n-fillers", "recall: different symbols between pairs and questions")
    add_integer("recall-gaps", "recall: tokens between pairs and questions, mixed", nargs="+")
    text = "gpn+m: with a memory (default); as large: gpn, without one, and the baselines transformer and gdn"
    add_one_of("model", list(MODELS), "NAME", text)
    add_one_of("preset", list(PRESETS), "NAME", f"sizes: {', '.join(PRESETS)}")
    add_integer("layers", "layers (default: the preset's, 12 of the transformer, 10 of the gdn)")
    add_integer("steps", "optimizer steps")
    add_integer("batch-size", "sequences a step")
    add_integer("window", "tokens of a sequence a step")
    where = "where windows begin: document (default for stories), or any token (for others)"
    add_one_of("window-start", ["document", "any"], "WHERE", where)
    add_integer("bptt", "cut the gradient every N tokens; 0: never")
    add_integer("accumulation", "parts of a batch, one after the other, to save memory")
    add("learning-rate", cli.number(above=0), "X", "its peak; AdamW, then a cosine down to a tenth of it")
    add_integer("warmup-steps", "steps up to the peak")
    add_integer("seed", "of initial values, batches and samples")
    add_integer("evaluate-every", "steps from one validation and sample to the next")
    add_integer("checkpoint-every", "steps from one checkpoint to the next")
    what = f"what computes: {', '.join(BACKENDS)} (default: numba where it imports)"
    add_one_of("backend", list(BACKENDS), "NAME", what)
    where = "the run directory, new or empty (default: a new one in runs/)"
    parser.add_argument("--out", type=cli.path, metavar="DIR", help=where)
    parser.add_argument("--resume", type=cli.path, metavar="RUN", help="go on with the run of this directory")
    return parser


def main(arguments=None):
    options = vars(parser().parse_args(arguments))
    out, resume = options.pop("out"), options.pop("resume")
    if options["text"]:
        options["text"] = [readable_again(file) for file in options["text"]]
    given = {name: value for name, value in options.items() if value is not None}
    try:
        run, experiment = reopen(resume, out, given) if resume else begin(out, given)
        with run, blas_threads(count_params(experiment.model_config)):
            return go(run, experiment, resume)
    except MemoryError as error:
        error.add_note("a smaller --batch-size, --window or --preset needs less")
        raise


def go(run, experiment, resume):
    """Train a run that is held; one that fails before its first step is over is removed again."""
    trainer = None
    try:
        trainer = Trainer(run, experiment)
        if resume:
            trainer.resume(warn)
            results = run.results()
            if trainer.finished and results and results.get("steps") == trainer.step:
                print(f"{resume} is finished: all {trainer.step} steps are done; see {run.results_path}")
                return 0
        announce(trainer)
        return train(trainer)
    except Exception as error:
        if not resume and not (trainer and trainer.tokens):
            run.discard()
        elif isinstance(error, OSError | MemoryError) and trainer and trainer.saved_step is not None:
            error.add_note(f"go on with: {how_to_go_on(run)}")
        raise


def warn(line):
    print(f"{PROG}: {line}", file=sys.stderr)


def how_to_go_on(run):
    return f"{PROG} --resume {cli.shell(run.path)}"


def readable_again(file):
    """The file's absolute path; ValueError for a pipe, which a run that is resumed could not read again."""
    path = Path(file)
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError(f"{file} is not a regular file; save it first")
    return str(path.resolve())


def begin(out, given):
    """A new run directory and its experiment, from the flags that were given."""
    require_sensible(given)
    if out:
        require_free(out)
    experiment = new_experiment(given)
    counts = np.bincount(experiment.task.tokens, minlength=experiment.encoding.n_vocab)
    ranks = format_ranks(ranks_of(experiment.encoding))
    for path in [Path(out)] if out else fresh_names(experiment):
        try:
            return RunDirectory.create(path, experiment.config(), ranks, counts), experiment
        except InUse:
            if out:
                raise


def reopen(resume, out, given):
    """The run directory to go on with, and its experiment; ValueError if a flag asks for something else."""
    run = RunDirectory(resume)
    if out:
        raise ValueError(f"--out {out} and --resume {resume} contradict each other; a run goes on in its own directory")
    experiment = restore_experiment(run)
    for name, value in given.items():
        began = experiment.choices[name]
        if value != began:
            flag, shown = "--" + name.replace("_", "-"), "without it" if began in (None, []) else f"with {began}"
            raise ValueError(f"{flag} is {value}, but the run in {resume} began {shown}; leave {flag} out")
    return run, experiment


def require_sensible(given):
    """ValueError for flags that would have no effect."""
    if "text" in given and "corpus" in given:
        raise ValueError(f"--corpus {given['corpus']} and --text contradict each other; give one of them")
    corpus = None if "text" in given else given.get("corpus", DEFAULTS["corpus"])
    fixed = {"stories": ["vocab_size"], "recall": ["vocab_size", "window", "window_start"]}
    for name in fixed.get(corpus, []):
        if name in given:
            raise ValueError(f"--{name.replace('_', '-')} has no effect on the corpus {corpus}; leave it out")
    for name in given:
        if name.startswith("recall_") and corpus != "recall":
            raise ValueError(f"--{name.replace('_', '-')} needs --corpus recall")


def fresh_names(experiment):
    """runs/stories-gpn+m, runs/stories-gpn+m-2, ..."""
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in experiment.corpus["name"])
    name = f"{name}-{experiment.model_config.name}"
    return (Path("runs") / (name if i == 1 else f"{name}-{i}") for i in count(1))


def announce(trainer):
    """Say what is about to be trained, on what, for how long."""
    experiment, choices = trainer.experiment, trainer.experiment.choices
    model, training = experiment.model_config, experiment.train_config
    lines = experiment.task.describe() | {"model": f"{model.name}: {model.sizes()}; {count_params(model):,} parameters"}
    if model.name != "gpn+m" and PRESETS[choices["preset"]].n_heads:
        layers = choices["layers"] if model.name == "gpn" else None
        with_memory = choose_model(choices["preset"], "gpn+m", layers, model.vocab_size)
        lines["compare"] = f"gpn+m of this preset has {count_params(with_memory):,} parameters"
    lines["training"] = (
        f"{training.steps} steps of {experiment.task.batch_size(training)}, "
        f"peak learning rate {training.learning_rate:g}, seed {training.seed}"
    )
    lines["run"] = f"{trainer.run.path}"
    if trainer.step:
        lines["run"] += f", going on after step {trainer.step}"
    for name, text in lines.items():
        print(f"{name:10} {text}")
    print(flush=True)


def train(trainer):
    """Train to the end, or to a signal; returns the exit status."""
    run = trainer.run
    baselines = measure_baselines(trainer.experiment)
    with Interrupts() as stop:
        try:
            trainer.train(stop)
        except Diverged as error:
            warn(error)
            return 1
    try:
        draw_losses(run.path / "loss.png", run.path.resolve().name, run.metrics(), baselines)
    except Exception as error:  # a picture is not worth a run
        warn(f"cannot draw loss.png: {' '.join(str(error).split())}")
    if not trainer.finished:
        print(f"stopped and saved after step {trainer.step}; go on with: {how_to_go_on(run)}")
        return stop.exit_status
    report(trainer, baselines)
    return 0


def measure_baselines(experiment):
    """What two models without training lose on the same validation text, in nats per token."""
    vocab_size = experiment.encoding.n_vocab
    trigram = Trigram(experiment.task.tokens, vocab_size)
    return {
        f"any token alike, ln {vocab_size}": math.log(vocab_size),
        "trigram": experiment.validation.trigram_loss(trigram),
    }


def report(trainer, baselines):
    """Print and keep what the finished run came to."""
    run, experiment = trainer.run, trainer.experiment
    name = experiment.model_config.name
    bound = experiment.model.bind(trainer.learner.params())
    last = run.metrics()[-1]
    answers = experiment.task.questions(bound)
    results = {
        "steps": trainer.step,
        "tokens": trainer.tokens,
        "parameters": count_params(experiment.model_config),
        "validation_loss": last["validation_loss"],
        "validation_bits_per_byte": last["validation_bits_per_byte"],
        "baseline_losses": baselines,
    }
    print_samples(run)
    print_losses(baselines | {name: last["validation_loss"]}, experiment.validation)
    if answers:
        results |= {
            "accuracy": answers.accuracy,
            "chance": answers.chance,
            "by_distance": answers.by_distance(),
        }
        print_answers(answers)
        if name == "gpn+m":
            corpus = experiment.corpus["name"]
            print(f"    to see what the memory does, train without it: {PROG} --corpus {corpus} --model gpn")
    with atomic_write(run.results_path) as file:
        file.write(json.dumps(results, indent=2) + "\n")
    print(f"\nfiles      {run.path}/: loss.png, samples.txt, metrics.jsonl, results.json, checkpoints/")
    print(f"next       python -m gpn_ref.sample {cli.shell(run.path)}")


def print_samples(run):
    samples = run.samples()
    for title, text in (samples[0], samples[-1]):
        print(f"\n{title}\n" + "\n".join(f"    {line}" for line in text.splitlines()))


def print_losses(losses, validation):
    print(f"\n{'on the validation text':28} {'nats per token':>15} {'perplexity':>12} {'bits per byte':>15}")
    for name, loss in losses.items():
        print(f"{name:28} {loss:15.3f} {perplexity(loss):12.4g} {validation.bits_per_byte(loss):15.3f}")


def print_answers(answers):
    right = f"{answers.accuracy:.2f} of {answers.correct.size} questions right; chance {answers.chance:.2f}"
    print(f"\nwords that only the text before tells: {right}")
    for distance, row in answers.by_distance().items():
        print(f"    {distance:32} {row['accuracy']:.2f} of {row['questions']} right")


if __name__ == "__main__":
    cli.run(main, PROG)
