"""Write text with a trained model, as it comes, in constant memory.

RUN is a run directory (its newest good checkpoint is used) or a checkpoint file; without one, the model that ships
is used, which the default run of train_tiny made. The prompt is printed first.
When the model ends a text, a blank line follows and it begins the next one, without a memory of the first.
"""

import itertools
import sys
from pathlib import Path

from gpn_ref import cli, random_state
from gpn_ref.files import TRAINED
from gpn_ref.generate import generate, stream_text
from gpn_ref.model import BACKENDS, load_model
from gpn_ref.text.tokenizer import END, encode
from gpn_ref.training.checkpoint import read_checkpoint
from gpn_ref.training.run_directory import RunDirectory

PROG = "python -m gpn_ref.sample"
EXAMPLES = """examples:
  python -m gpn_ref.sample
  python -m gpn_ref.sample runs/stories
  python -m gpn_ref.sample runs/stories --prompt "Once there was" --tokens 200 --temperature 0.7 --top-p 0.9
  python -m gpn_ref.sample runs/stories/checkpoints/step-000400.safetensors --temperature 0
"""


def parser():
    parser = cli.Parser(prog=PROG, description=__doc__, epilog=EXAMPLES)
    where = "a run directory, or a checkpoint file (default: the model that ships)"
    parser.add_argument("run", type=cli.path, nargs="?", default=TRAINED, metavar="RUN", help=where)
    what = "what the text begins with (default: nothing)"
    parser.add_argument("--prompt", type=cli.text, default="", metavar="TEXT", help=what)
    parser.add_argument("--tokens", type=cli.integer(1), default=200, metavar="N", help="tokens to write (default 200)")
    parser.add_argument(
        "--temperature",
        type=cli.number(at_least=0),
        default=0.8,
        metavar="X",
        help="divides the logits; 0 always takes the likeliest token (default 0.8)",
    )
    parser.add_argument(
        "--top-k",
        type=cli.integer(0),
        default=0,
        metavar="N",
        help="draw from the N likeliest; 0: from all (default)",
    )
    parser.add_argument(
        "--top-p",
        type=cli.number(above=0, at_most=1),
        default=1.0,
        metavar="X",
        help="draw from the fewest tokens whose probability together is X or more (default 1: from all)",
    )
    parser.add_argument("--seed", type=cli.SEED, default=0, metavar="N", help="of the draws (default 0)")
    parser.add_argument(
        "--backend",
        type=cli.one_of("backend", list(BACKENDS)),
        metavar="NAME",
        help=f"what computes: {', '.join(BACKENDS)} (default: numba where it imports)",
    )
    return parser


def load_checkpoint(path):
    """The newest good checkpoint of a run directory, or that of a file."""
    if not Path(path).is_dir():
        return read_checkpoint(path)
    checkpoint = RunDirectory(path).latest_checkpoint(lambda line: print(f"{PROG}: {line}", file=sys.stderr))
    if checkpoint is None:
        raise ValueError(f"{path} has no checkpoint yet")
    return checkpoint


def main(arguments=None):
    options = parser().parse_args(arguments)
    checkpoint = load_checkpoint(options.run)
    encoding = checkpoint.encoding()
    prompt = encode(encoding, options.prompt)
    bound = load_model(checkpoint.model_config, options.backend).bind(checkpoint.params)
    tokens = generate(
        bound,
        random_state.generator(options.seed, "samples"),
        encoding.encode_single_token(END),
        prompt,
        options.temperature,
        options.top_k,
        options.top_p,
    )
    print(options.prompt, end="", flush=True)
    for text in stream_text(itertools.islice(tokens, options.tokens), encoding):
        print(text, end="", flush=True)
    print()
    return 0


if __name__ == "__main__":
    cli.run(main, PROG)
