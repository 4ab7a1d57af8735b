"""What the numbers say, by rule: every sentence is a function of the table.

Of two rows one is better only if their means over seeds differ by more than the sum of the two standard deviations;
otherwise they tie. With one seed, or where a run is missing or has diverged, nothing is claimed.
"""

from itertools import combinations
from math import comb

from gpn_ref.reproduction.plan import REFERENCE, ROWS

ONE_SEED = "One seed tells no spread, so no order is claimed."
RULE = (
    "One model is better than another only if their means differ by more than the sum of the two standard deviations "
    "over seeds; otherwise they tie."
)
LEARNED = 0.9  # share of the values recalled
LOWER_IS_BETTER = {"perplexity", "bits_per_byte", "cloze_perplexity"}
BESIDE_PAPER = (  # what is compared with the paper: a corpus, a metric, the paper's number, and in words
    ("stories", "perplexity", "perplexity", "Perplexity on stories"),
    ("python-docs", "perplexity", "perplexity", "Perplexity on python-docs"),
    ("stories", "cloze_accuracy", "cloze_accuracy", "Last words of stories"),
)
RECALLED = ("recall", "recall_accuracy", "Values recalled")
EXTRA = ("gpn+m-decay-first", "gdn-1", "transformer-1")  # rows that are compared with the reference


def compare(one, other, metric):
    """1 if `one`, {"seeds", "mean", "sd"}, is better than `other`, -1 if worse, 0 for a tie; None: can't be told."""
    if not (told(one) and told(other)):
        return None
    difference = one["mean"] - other["mean"]
    if abs(difference) <= one["sd"] + other["sd"]:
        return 0
    return 1 if (difference < 0) == (metric in LOWER_IS_BETTER) else -1


def told(measured):
    """Whether all seeds of a row are there, and more than one."""
    return measured is not None and None not in measured["seeds"] and measured["sd"] is not None


def order(values, paper, metric, paper_metric):
    """The pairs of rows that both have: {"same": [(better, worse)], "other": ..., "tie": ..., "untold": ...}.

    values: row -> measured or None; paper: row -> the paper's numbers. "same" is ordered as in the paper.
    """
    found = {"same": [], "other": [], "tie": [], "untold": []}
    for one, other in combinations(values, 2):
        first, second = getattr(paper[one], paper_metric), getattr(paper[other], paper_metric)
        if (first > second) == (paper_metric in LOWER_IS_BETTER):
            one, other = other, one  # the paper's better one first
        verdict = compare(values[one], values[other], metric)
        kind = {1: "same", -1: "other", 0: "tie", None: "untold"}[verdict]
        found[kind].append((other, one) if verdict == -1 else (one, other))
    return found


def findings(table):
    """Topic -> a paragraph, of a table as `tabulate` makes it."""
    found = {
        "Order": rule(len(table["seeds"])) + [order_text(table, *measure) for measure in BESIDE_PAPER],
        "Beyond the paper": [extra_text(table, row) for row in EXTRA],
        "Recall": [recall_text(table)],
        "Conditions": conditions(table),
    }
    return {topic: text for topic, sentences in found.items() if (text := " ".join(filter(None, sentences)))}


def rule(seeds):
    """What "better" means with so many seeds, and what no rule can make of them."""
    if seeds < 2:
        return [ONE_SEED]
    deals = comb(2 * seeds, seeds)  # ways to call half of the numbers the one model's, all alike if nothing differs
    return [RULE, f"(Of {seeds} seeds against {seeds} an exact permutation test cannot get below p = {2 / deals:.2g}.)"]


def measured(table, row, corpus, metric):
    """{"seeds", "mean", "sd"} of a row, or None if it is not part of the table or none of its runs is done."""
    found = table["rows"].get(row, {}).get("measured", {}).get(corpus, {}).get(metric)
    return found if found and found["mean"] is not None else None


def order_text(table, corpus, metric, paper_metric, words):
    rows = [row for row in table["rows"] if ROWS[row].paper]
    if corpus not in table["corpora"] or len(rows) < 2:
        return ""
    name = {row: table["rows"][row]["name"] for row in rows}
    values = {row: measured(table, row, corpus, metric) for row in rows}
    ranked = [row for row in rows if values[row]]
    ranked.sort(key=lambda row: values[row]["mean"], reverse=metric not in LOWER_IS_BETTER)
    ranking = ", ".join(f"{name[row]} {number(values[row]['mean'], metric)}" for row in ranked)
    text = f"{words}, of the paper's models, best first: {ranking}."
    pairs = order(values, {row: ROWS[row].paper for row in rows}, metric, paper_metric)
    if len(table["seeds"]) < 2:
        return text

    def listed(kind, between):
        partners = {one: [name[other] for first, other in pairs[kind] if first == one] for one, _ in pairs[kind]}
        return "; ".join(f"{name[one]} {between} {', '.join(others)}" for one, others in partners.items())

    n_pairs = sum(map(len, pairs.values()))
    text += f" Of the paper's {n_pairs} pairs, {len(pairs['same'])} come in its order"
    if pairs["other"]:
        text += f", {len(pairs['other'])} the other way round ({listed('other', 'better than')})"
    if pairs["tie"]:
        text += f", {len(pairs['tie'])} tie ({listed('tie', 'with')})"
    if pairs["untold"]:
        text += f", {len(pairs['untold'])} can't be told, for runs are missing or diverged ({listed('untold', 'and')})"
    return text + "."


def extra_text(table, row):
    """A row that the paper lacks against the GPN+M of one layer."""
    if not {row, REFERENCE} <= table["rows"].keys():
        return ""
    parts = []
    for corpus, metric, words in [(corpus, metric, words) for corpus, metric, _, words in BESIDE_PAPER] + [RECALLED]:
        one, other = measured(table, row, corpus, metric), measured(table, REFERENCE, corpus, metric)
        if one and other:
            numbers = " against ".join(number(mean, metric) for mean in (one["mean"], other["mean"]))
            text = f"{words[0].lower()}{words[1:]} {numbers}"
            text += f", a difference of {one['mean'] - other['mean']:+.3g}"
            verdict = compare(one, other, metric)
            if verdict is not None:
                text += f" with a spread of {one['sd'] + other['sd']:.3g}: {('a tie', 'better', 'worse')[verdict]}"
            parts.append(text)
    names = [table["rows"][name]["name"] for name in (row, REFERENCE)]
    return f"{names[0]} against {names[1]}: {'; '.join(parts)}." if parts else ""


def recall_text(table):
    """Which seeds of which rows learned to recall."""
    parts = []
    for row, content in table["rows"].items():
        found = measured(table, row, "recall", "recall_accuracy")
        if not found:
            continue
        pairs = [(seed, right) for seed, right in zip(table["seeds"], found["seeds"], strict=True) if right is not None]
        learned = [str(seed) for seed, right in pairs if right >= LEARNED]
        missed = [f"{right:.2f}" for _, right in pairs if right < LEARNED]
        text = f"with seed {', '.join(learned)}" if learned else "with no seed"
        others = "the others: " * bool(learned) + ", ".join(missed)
        parts.append(f"{content['name']} {text}" + f" ({others})" * bool(missed))
    if not parts:
        return ""
    chance = table["recall_chance"]
    return f"At least {LEARNED:g} of the values recalled, chance {chance:.3g}: " + "; ".join(parts) + "."


def conditions(table):
    """What a reader must know of how the numbers came about."""
    rows, sentences = table["rows"], []
    for row, content in rows.items():
        if content["layers"] < ROWS[row].layers:
            sentences.append(
                f"{content['name']} stands for {ROWS[row].layers} layers: more layers cannot be made to fit so few "
                "parameters."
            )
    if len(table["plan"]["rates"]) > 1:
        sentences.append(
            "Each model's learning rate was chosen on stories, by the validation text that its perplexity is then told "
            "of, and is used on every corpus."
        )
    if "transformer-1" in rows and "recall" in table["corpora"]:
        sentences.append(
            "One layer of attention sees each token alone and cannot look for the token after a key; the others meet "
            "their neighbours in a state, a convolution or a layer below."
        )
    edge = [f"{row['name']} ({row['learning_rate']:g})" for row in rows.values() if row["at_edge"]]
    swept = [row for row in rows.values() if len(row["sweep"]) > 1 and row["learning_rate"]]
    if edge:
        sentences.append(
            f"The chosen learning rate lies at the edge of the grid for {', '.join(edge)}: a better one may lie beyond."
        )
    elif swept:
        sentences.append("No chosen learning rate lies at the edge of the grid.")
    if "gpn+m-2" in rows and not table["bptt"]:
        sentences.append(
            f"{rows['gpn+m-2']['name']} is trained with the whole gradient of its windows of {table['window']} tokens; "
            "the paper cuts it every 512 of 2,048."
        )
    diverged = [f"{run['row']} on {run['corpus']} with seed {run['seed']}" for run in table["diverged"]]
    if diverged:
        sentences.append(f"Diverged: {'; '.join(diverged)}.")
    if table["missing"]:
        sentences.append(f"Not done yet: {table['missing']} of {table['n_cells']} runs.")
    return sentences


def number(value, metric):
    """Four figures of a perplexity, two decimals of a share."""
    return f"{value:#.4g}" if metric in LOWER_IS_BETTER else f"{value:.2f}"
