"""Write text with a trained model, as it comes, in constant memory.

RUN is a run directory (its newest good checkpoint is used) or a checkpoint file; without one, the model that ships
is used, which the default run of train_tiny made. The prompt is printed first.
When the model ends a text, a blank line follows and it begins the next one, without a memory of the first.
"""

import itertools

from gpn_ref import cli, random_state
from gpn_ref.generate import generate, stream_text
from gpn_ref.text.tokenizer import END, encode
from gpn_ref.trained import Trained, add_backend, add_run

PROG = "python -m gpn_ref.sample"
EXAMPLES = """examples:
  python -m gpn_ref.sample
  python -m gpn_ref.sample runs/stories
  python -m gpn_ref.sample runs/stories --prompt "Once there was" --tokens 200 --temperature 0.7 --top-p 0.9
  python -m gpn_ref.sample runs/stories/checkpoints/step-000400.safetensors --temperature 0
"""


def parser():
    parser = cli.Parser(prog=PROG, description=__doc__, epilog=EXAMPLES)
    add_run(parser)
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
    add_backend(parser)
    return parser


def main(arguments=None):
    options = parser().parse_args(arguments)
    trained = Trained(options.run, options.backend, PROG)
    encoding = trained.encoding
    prompt = encode(encoding, options.prompt)
    tokens = generate(
        trained.bound,
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
