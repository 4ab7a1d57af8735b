"""How answers are compared, what is said about wrong ones, and which hint is given."""

import numpy as np
import pytest

from lessons.grading import Exercise, Foreseen, Part, attempt, cases_of, difference, grade, in_words, judge
from lessons.sandbox import Answer, Garbage, Raised, Run


def told(expected, got, tolerance=1e-9):
    found = difference(expected, got, tolerance)
    return found and f"{found.place}: expected {found.expected}, got {found.got}{found.count}"


ZEROS = np.zeros((2, 3))
HALF = np.array([[0.5, 1.0, 2.0], [0.0, -1.0, 3.0]])


# ------------------------------------------------------------------------------------------------------ to compare
@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (HALF, HALF.copy()),
        (HALF, HALF + 2e-9),
        (HALF, HALF.tolist() and HALF.astype(np.longdouble)),
        (1e6 * HALF, 1e6 * HALF + 2e-3),
        (ZEROS, ZEROS + 9e-13),
        (np.arange(3), np.array([0.0, 1.0, 2.0])),
        (np.array([np.nan, np.inf, -np.inf, 1.0]), np.array([np.nan, np.inf, -np.inf, 1.0])),
        (np.zeros((0, 3)), np.zeros((0, 3))),
        (1.5, np.float64(1.5)),
        (np.array(1.5), 1.5),
        (2, 2.0),
        (True, np.bool_(True)),
        (1j, np.complex128(1j)),
        ((1, HALF), [1.0, HALF]),
        (Foreseen("a", 1), ("a", 1)),
        ({"a": HALF, 2: None}, {2: None, "a": HALF}),
        ("a", "a"),
        (None, None),
        ({1, 2}, {2, 1}),
    ],
    ids=repr,
)
def test_the_same(expected, got):
    assert told(expected, got) is None


@pytest.mark.parametrize(
    ("expected", "got", "words"),
    [
        (HALF, HALF * [[1, 1, -1]], "out[0, 2]: expected 2, got -2; 2 of 6 entries differ"),
        (HALF, HALF + 1e-8, "out[0, 0]: expected 0.5, got 0.50000001; 6 of 6 entries differ"),
        (ZEROS, ZEROS + 2e-12, "out[0, 0]: expected 0, got 2e-12; 6 of 6 entries differ"),
        (
            np.array([0.1]),
            np.array([0.1], np.float32),
            "out[0]: expected 0.1, got 0.100000001; yours is float32, asked for is float64",
        ),
        (HALF, HALF.T, "out: expected the shape (2, 3), got the shape (3, 2)"),
        (HALF, HALF[:, None], "out: expected the shape (2, 3), got the shape (2, 1, 3)"),
        (HALF, HALF.tolist(), "out: expected an array of shape (2, 3), got a list of 2"),
        (HALF, 0.5, "out: expected an array of shape (2, 3), got one number, 0.5"),
        (HALF, None, "out: expected an array of shape (2, 3), got None (is the return missing?)"),
        (HALF, HALF + 0j, "out: expected real numbers, got complex numbers"),
        (
            HALF,
            np.where(HALF > 2, np.nan, HALF),
            "out[1, 2]: expected 3, got nan, which is not finite; 1 of 6 entries differ",
        ),
        (
            HALF,
            np.where(HALF > 2, np.inf, HALF),
            "out[1, 2]: expected 3, got inf, which is not finite; 1 of 6 entries differ",
        ),
        (np.array([np.inf]), np.array([-np.inf]), "out[0]: expected inf, got -inf"),
        (np.array([np.inf]), np.array([1e300]), "out[0]: expected inf, got 1e+300"),
        (np.array([2**60]), np.array([2**60 + 1]), "out[0]: expected 1152921504606846976, got 1152921504606846977"),
        (0.5, -0.5, "out: expected 0.5, got -0.5"),
        (0.5, np.array([0.5]), "out: expected one number, 0.5, got an array of shape (1,)"),
        (1.0, "1.0", "out: expected one number, 1, got the text '1.0'"),
        ((1, 2), (1, 3), "out[1]: expected 2, got 3"),
        ((1, HALF), (1, -HALF), "out[1][0, 0]: expected 0.5, got -0.5; 5 of 6 entries differ"),
        ((1, 2), (1,), "out: expected a tuple of 2, got a tuple of 1"),
        ((1, 2), np.ones(2), "out: expected a tuple of 2, got an array of shape (2,)"),
        (Foreseen("a", 1), ("a", 2), "out.wrong: expected 1, got 2"),
        ({"a": 1}, {"a": 2}, "out['a']: expected 1, got 2"),
        ({"a": HALF}, {"a": HALF + 1}, "out['a'][0, 0]: expected 0.5, got 1.5; 6 of 6 entries differ"),
        ({"a": 1, "b": 2}, {"a": 1}, "out: expected the key 'b', got a dict without it, of 1 keys"),
        ({"a": 1}, {"a": 1, "b": 2}, "out: expected no key 'b', got one"),
        ({"a": 1}, [1], "out: expected a dict of 1 keys, got a list of 1"),
        ("ab", "abc", "out: expected 'ab', got 'abc'"),
        ("ab", b"ab", "out: expected the text 'ab', got the text b'ab'"),
        (None, 0, "out: expected None (is the return missing?), got one number, 0"),
    ],
    ids=str,
)
def test_the_first_difference_is_told(expected, got, words):
    assert told(expected, got) == words


def test_where_the_first_entry_hardly_differs_the_worst_is_told_too():
    got = HALF + [[1e-7, 0, 0], [0, 0.25, 0]]
    words = "out[0, 0]: expected 0.5, got 0.5000001; 2 of 6 entries differ, most of all out[1, 1]: expected -1, got"
    assert told(HALF, got) == f"{words} -0.75"
    assert told(HALF, HALF + [[0.01, 0, 0], [0, 0.25, 0]]) == "out[0, 0]: expected 0.5, got 0.51; 2 of 6 entries differ"


def test_the_items_of_a_tuple_have_the_names_of_the_part():
    named = difference((1.0, HALF), (1.0, -HALF), 1e-9, names=("d_x", "d_weight"))
    assert named.place == "d_weight[0, 0]"
    part = PART._replace(function="both", names=("d_x", "d_weight"))
    right = judge(part, solution, CASES, Run([attempt(solution.both, case) for case in CASES]))
    wrong = judge(part, solution, CASES, Run([attempt(lambda x, factor: (x, 0.0), case) for case in CASES]))
    assert right.message == "" and wrong.message == "d_weight: expected 1, got 0"


@pytest.mark.filterwarnings("error")
def test_answers_near_overflow_and_long_texts():
    words = "out[0]: expected 1e+308, got -1e+308; 1 of 2 entries differ"
    assert told(np.array([1e308, 1.0]), np.array([-1e308, 2.0])) == words
    assert told(np.ones(2), np.full(2, np.longdouble("1e4000"))).startswith("out[0]: expected 1, got")
    assert told("a", "\0" * 10**7) == "out: expected 'a', got '" + "\\x00" * 14 + "\\x…"


def test_the_tolerance_is_that_of_the_part():
    assert told(HALF, HALF + 0.02, 0.01) is None
    assert told(HALF, HALF + 0.04, 0.01) is not None


# -------------------------------------------------------------------------------------------------------- to judge
class solution:
    """What a module of solutions is."""

    @staticmethod
    def scaled(x, factor):
        return factor * x.sum(axis=0)

    @staticmethod
    def twice(x, factor):
        return 2 * x.sum(axis=0)

    @staticmethod
    def both(x, factor):
        return x, factor


def cases(rng):
    yield rng.standard_normal((3, 2)), 1.0
    yield rng.standard_normal((4, 8)), 3.0


PART = Part(
    "scaled",
    cases,
    [
        Foreseen("the sign", lambda x, factor: -factor * x.sum(axis=0)),
        Foreseen("where is the factor?", lambda x, factor: x.sum(axis=0)),
        Foreseen("no sum", lambda x, factor: factor * x),
        Foreseen("it breaks", lambda x, factor: x[100]),
        Foreseen("never", lambda x, factor: None),
    ],
)
CASES = cases_of(PART, "00")


def verdict(function):
    return judge(PART, solution, CASES, Run([attempt(function, case) for case in CASES]))


def test_right():
    assert verdict(solution.scaled) == (True, "", "", "")
    assert (
        verdict(lambda x, factor: list(np.einsum("bd->d", factor * x)) and np.einsum("bd->d", factor * x)).message == ""
    )


@pytest.mark.parametrize("foreseen", PART.foreseen, ids=lambda foreseen: foreseen.hint)
def test_the_foreseen_hint(foreseen):
    assert verdict(foreseen.wrong).hint == foreseen.hint


def test_a_wrong_answer_that_was_not_foreseen_gets_no_hint():
    assert verdict(lambda x, factor: factor + x.sum(axis=0)).hint == ""
    # Right in the case that is shown, where the foreseen one is wrong.
    assert verdict(lambda x, factor: x.sum(axis=0) + (factor if factor > 1 else 0)).hint == ""


def test_two_mistakes_at_once_get_the_hint_of_the_one_that_is_shown():
    assert verdict(lambda x, factor: -factor * (x.sum(axis=0) if factor == 1 else x[0])).hint == "the sign"
    # One case of three is no sign of anything.
    three = [*CASES, *cases_of(PART, "01")[1:]]
    given = [attempt(lambda x, factor: -x.sum(axis=0) if factor == 1 else x[0], case) for case in three]
    assert judge(PART, solution, three, Run(given)).hint == ""
    # An exception is, if it is that in all cases that are wrong.
    broken = [attempt(PART.foreseen[3].wrong, case) for case in CASES]
    assert judge(PART, solution, CASES, Run(broken)).hint == "it breaks"
    assert judge(PART, solution, CASES, Run([broken[0], attempt(lambda *case: 0.0, CASES[1])])).hint == ""


def test_of_a_tuple_the_item_that_is_wrong_is_looked_at():
    foreseen = [
        Foreseen("doubled", lambda x, factor: (2 * x, factor)),
        Foreseen("less", lambda x, factor: (x, factor - 1)),
        Foreseen("doubled and less", lambda x, factor: (2 * x, factor - 1)),
    ]
    part = PART._replace(function="both", foreseen=foreseen)

    def hint_for(function):
        return judge(part, solution, CASES, Run([attempt(function, case) for case in CASES])).hint

    assert hint_for(lambda x, factor: (2 * x, 17.0)) == "doubled"  # the second is another matter
    assert hint_for(lambda x, factor: (2 * x, factor - 1)) == "doubled and less"
    assert hint_for(lambda x, factor: (x, factor - 1)) == "less"
    assert hint_for(lambda x, factor: (x + 1, factor - 1)) == ""  # what is shown first has no hint
    assert hint_for(lambda x, factor: (2 * x,)) == ""


def test_the_case_that_shows_it_is_told():
    found = verdict(lambda x, factor: x.sum(axis=0))
    assert found.message.startswith("out[0]: expected ") and found.message.endswith("8 of 8 entries differ")
    assert found.case == "x of shape (4, 8), factor = 3"


def test_arguments_in_words():
    values = [2, np.array([[0.5, 1.0]]), np.ones((4, 5)), "text", {"w": 1, "m": np.ones(9)}, print]
    assert (
        in_words("abcdef", values)
        == "a = 2, b = [[0.5 1. ]], c of shape (4, 5), d = 'text', e with w = 1, m of shape (9,)"
    )
    values = [[1, 2.5], [0.25] * 90, [np.ones(2)], {}, {"a": "b"}, np.random.default_rng(0)]
    assert (
        in_words("abcdef", values)
        == "a = [1, 2.5], b a list of 90, c a list of 1, d a dict of 0 keys, e a dict of 1 keys"
    )


def in_place(x, factor):
    x *= factor
    return x.sum(axis=0)


def test_a_change_in_place_is_told_even_if_the_answer_is_right():
    first = CASES[1][0][0, 0]
    message = f"it changes its argument: x[0, 0] was {first:.4g}, and is {3 * first:.4g} after the call"
    assert verdict(in_place).message == message
    np.testing.assert_equal(CASES, cases_of(PART, "00"))


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (Raised("NotImplementedError", "", 3, "scaled"), "not written yet"),
        (Raised("NotImplementedError", "", 3, "other"), "not written yet: other, which it calls"),
        (Raised("ValueError", "too bad", 2, "scaled"), "ValueError: too bad (line 2: return x)"),
        (Raised("ValueError", "", 99, "scaled"), "ValueError (line 99)"),
        (Raised("MemoryError", "", 0, ""), "MemoryError"),
        (Garbage("a generator"), "out: expected an array of shape (2,), got a generator"),
    ],
)
def test_other_outcomes_in_words(outcome, message):
    source = "def scaled(x, factor):\n    return x\n"
    found = judge(PART, solution, CASES, Run([outcome, Answer(3, ())]), source)
    assert found.message == message and found.hint == ""


@pytest.mark.parametrize(
    "ran",
    [
        Run([]),
        Run([attempt(solution.scaled, CASES[0])]),
        Run([attempt(solution.scaled, case) for case in CASES], "it stopped"),
        Run([Raised("E", "", 0, "")] * 2),
        Run([Garbage("")] * 2),
        Run([Answer((), ())] * 2),
    ],
)
def test_only_right_answers_to_all_cases_pass(ran):
    found = judge(PART, solution, CASES, ran)
    assert not found.passed and found.message


def test_the_lines_of_a_file_are_counted_as_python_does():
    source = "\x0c# a\x0b\rdef scaled(x, factor):\n    return x[9]  # \u2028\n    pass\n"
    raised = Raised("IndexError", "", 3, "scaled")
    assert judge(PART, solution, CASES, Run([raised] * 2), source).message == "IndexError (line 3: return x[9] #)"


def test_why_it_ended_is_told_after_what_was_wrong_before():
    right = attempt(solution.scaled, CASES[0])
    wrong = attempt(lambda x, factor: -x, CASES[0])
    assert judge(PART, solution, CASES, Run([right], "it stopped")).message == "it stopped"
    assert (
        judge(PART, solution, CASES, Run([], Raised("SyntaxError", "bad", 1, "")), "x x").message
        == "SyntaxError: bad (line 1: x x)"
    )
    assert judge(PART, solution, CASES, Run([wrong], "it stopped")).message.startswith("out: expected the shape (2,)")


# -------------------------------------------------------------------------------------------------------- to grade
NAMELESS = (
    "E = type('', (Exception,), {})\nexec(compile('def scaled(*a): raise E\\ndef twice(*a): raise E', '', 'exec'))\n"
)
IMPORT = "__builtins__['__import__'].__closure__"
PASSES = "def scaled(*a): pass\ntwice = scaled\n"
SENDS = f"""for cell in {IMPORT}:
    if getattr(cell.cell_contents, '__name__', '') == 'refuse':
        cell.cell_contents.__closure__[0].cell_contents.send({{}})
"""


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (NAMELESS, "an exception without a name"),
        (
            f"{PASSES}[cell.cell_contents for cell in {IMPORT}][-1]('')",
            "imports what it may not: exercise 00 may import",
        ),
        (PASSES + SENDS.format('{"broken": ["", "", 0, ""]}'), "an exception without a name"),
        (PASSES + SENDS.format('{"broken": []}'), "it wrote into the pipe to the grader"),
        (PASSES + SENDS.format('{"refused": ""}'), "imports what it may not"),
        (
            PASSES + SENDS.format('{"answer": None, "after": {"tuple": []}}'),
            "out: expected an array of shape (2,), got None",
        ),
    ],
)
def test_an_answer_that_says_nothing_is_not_right(source, message):
    found = graded(source).results
    assert [result.passed for result in found] == [False, False]
    assert all(result.message.startswith(message) for result in found), found


KERNEL = """from lessons.little_gpu import kernel
@kernel
def double(me, x, out): out[me.thread] = 2 * x[me.thread]
"""


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (KERNEL, ""),
        ("def double(*a): return a[5], 2 * a[5]", "TypeError: double is not made by @kernel"),
        (
            KERNEL.replace("= 2 *", "= x._number(0) + 0 *"),
            "AttributeError: _number: names that begin with _ are none of a kernel's "
            "(line 3: def double(me, x, out): out[me.thread] = x._number(0) + 0 * x[me.thread])",
        ),
        (
            KERNEL + "def double(*a): return a[5], 2 * a[5]\ndouble.function = lambda me, x, out: None\n",
            "out[0]: expected 2, got 0; 2 of 2 entries differ",
        ),
    ],
    ids=["a kernel", "none", "a kernel that looks inside", "something that has one"],
)
def test_a_kernel_is_run_as_one_whatever_it_was_made_into(source, message):
    class doubling:
        @staticmethod
        def double(blocks, threads, order, most, each, x, out):
            return x, 2 * x

    made_by, names = "lessons.little_gpu.kernel", ("x", "out")
    cases = [(1, 2, "forwards", {}, {}, np.ones(2), np.zeros(2))]
    part = Part("double", lambda rng: cases, [], names=names, made_by=made_by)
    [result] = grade(Exercise("00", "ex00_x", [part], doubling, {"double": 1}, (made_by,)), source, "ex00.py").results
    assert (result.message, result.passed) == (message, not message)


def graded(source):
    parts = [PART, Part("twice", cases, [])]
    exercise = Exercise("00", "ex00_x", parts, solution, {"scaled": 2, "twice": 3}, ("gpn_ref.config",))
    return grade(exercise, source, "ex00_x.py")


def test_parts_have_points_of_their_own():
    scaled = "def scaled(x, factor):\n    print(factor)\n    return factor * x.sum(axis=0)\n"
    found = graded(f"{scaled}def twice(x, factor):\n    return x\n")
    assert [(result.points, result.maximum) for result in found.results] == [(2, 2), (0, 3)]
    assert (found.points, found.maximum) == (2, 5) and found.seconds > 0
    assert found.results[0].output == "1.0\n3.0\n"


def test_a_part_that_calls_a_wrong_part_is_told_so_before_its_own_hint():
    wrong = "def scaled(x, factor):\n    return -both(x, factor)[0].sum(axis=0) * factor\n"
    source = f"def both(x, factor):\n    return x, -factor\n{wrong}"
    parts = [PART._replace(function="both", foreseen=[]), PART]
    exercise = Exercise("00", "ex00_x", parts, solution, {"both": 1, "scaled": 1}, ())
    hints = [result.hint for result in grade(exercise, source, "ex00_x.py").results]
    assert hints == ["", "it calls both, which is not right yet: mend that first. And the sign"]


def test_a_part_that_calls_a_wrong_part_is_told_so():
    source = "def scaled(x, factor):\n    return x.sum()\ndef twice(x, factor):\n    return scaled(x, 2.0)\n"
    assert [result.hint for result in graded(source).results] == [
        "",
        "it calls scaled, which is not right yet: mend that first",
    ]


@pytest.mark.parametrize("where", ["import os\n{}", "{}\n    import os"])
def test_a_forbidden_import_gets_nothing_at_all(where):
    right = (
        "def scaled(x, factor):\n    return factor * x.sum(axis=0)\ndef twice(x, factor):\n    return 2 * x.sum(axis=0)"
    )
    assert graded(right).points == 5
    found = graded(where.format(right)).results
    line = 1 if where.startswith("import") else 5
    message = f"imports os (line {line}): exercise 00 may import numpy, math and gpn_ref.config"
    assert [(result.points, result.message) for result in found] == [(0, message)] * 2
