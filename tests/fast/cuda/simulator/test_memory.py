"""The kernels of the memory, each by itself, against the reference's write and read."""

import numpy as np
import pytest
from fast.cuda.simulator import turns
from fast.cuda.simulator.alone import changed, exactly, nan, normal, run, same

from gpn_ref.fast.cuda.card import SMALL
from gpn_ref.fast.cuda.layout import Sizes, look, width
from gpn_ref.fast.cuda.memory import memory_kernels
from gpn_ref.fast.cuda.tile import Tile
from gpn_ref.reference import ops
from gpn_ref.reference.memory import delta_backward, delta_forward, outer, recall

B, H, SLOTS = 2, 2, 4
FIRST, STEP = 2 * B, 1  # the rows of slot 2, which is step 1 of its segment
HERE, BEFORE = np.s_[FIRST : FIRST + B], np.s_[FIRST - B : FIRST]
CUTS = {  # K, U and a Tuning that cuts them
    "5 × 7 in two pieces, none of them whole": (5, 7, SMALL),
    "4 × 8 in two whole pieces": (4, 8, SMALL),
    "6 × 7 in four pieces of narrow threads": (6, 7, SMALL._replace(rows=3, columns=1, threads=8)),
    "4 × 5 in less than a piece": (4, 5, SMALL._replace(rows=4, columns=4, width=4)),
}


@pytest.fixture(params=CUTS)
def cut(request):
    return CUTS[request.param]


@pytest.fixture(params=[False, True], ids=["error first", "decay first"])
def decay_first(request):
    return request.param


class Case:
    """Kernels, and the arrays of a window that they work on."""

    def __init__(self, cut, decay_first, dtype):
        K, U, self.tuning = cut
        self.s, self.dtype = Sizes(11, 5, 6, 7, H, K, U, 1, decay_first), dtype
        self.kernels = memory_kernels(self.s, np.dtype(dtype).type, self.tuning)
        self.tile = self.kernels.tile
        self.pieces = self.tile.pieces
        HK, M = self.s.HK, H * K * U
        (self.pre, self.key_bias, self.query_bias, self.decay_bias, self.log_rate, self.memory, self.recalled) = normal(
            "memory", dtype, (SLOTS * B, width(look(self.s, 0))), (1, HK), (1, HK), (1, H), (1, H), (B, M),
            (SLOTS * B, self.s.HU),
        )  # fmt: skip
        self.at = {name: np.s_[part.start : part.start + part.size] for name, part in look(self.s, 0).items()}
        self.params = {name: getattr(self, name) for name in ("key_bias", "query_bias", "decay_bias", "log_rate")}

    def run(self, name, arguments, expected):
        grid = B * H, self.pieces
        threads = self.tile.threads
        if name in ("query_back", "addresses_back"):
            grid, threads = B * H, self.tuning.threads
        arguments = {"first": FIRST, "pre": self.pre} | arguments
        run(getattr(self.kernels, name), grid, threads, arguments, expected)

    def address(self, what, rows):
        """-> key or query (B, H, K), what undoes its length, and where it is active."""
        bias = {"key": self.key_bias, "query": self.query_bias}[what]
        pre = np.add(*exactly(self.pre[rows, self.at[what]], bias)).reshape(B, H, -1)
        return *ops.l2_norm_forward(np.maximum(pre, 0)), pre > 0

    def decay(self, rows):
        """-> what softplus takes, rate, decay."""
        pre, bias, log_rate = exactly(self.pre[rows, self.at["decay"]], self.decay_bias, self.log_rate)
        x, rate = pre + bias, np.exp(log_rate[0])
        return x, rate, np.exp(-rate * np.logaddexp(0, x))

    def written_with(self, rows, rows_before):
        """What the write of these rows takes: key, value, β, decay."""
        [pre] = exactly(self.pre[rows])
        key, value = self.address("key", rows_before)[0], pre[:, self.at["value"]].reshape(B, H, -1)
        return key, value, ops.sigmoid(pre[:, self.at["beta"]]), self.decay(rows)[2]

    def as_heads(self, memory):
        return exactly(memory)[0].reshape(-1, H, self.s.K, self.s.U)

    def of_pieces(self, array, size):
        """Shares of the pieces, (pieces · B, ·), added up."""
        return exactly(array)[0].reshape(self.pieces, B, size).sum(axis=0)


@pytest.fixture
def case(cut, decay_first, dtype):
    return Case(cut, decay_first, dtype)


@pytest.fixture
def plain(cut, dtype):
    """For what does not depend on the order of decay and error."""
    return Case(cut, False, dtype)


def flat(x):
    return x.reshape(len(x), -1)


def test_how_a_memory_is_cut():
    tile = Tile(5, 7, SMALL)
    assert (tile.height, tile.threads, tile.across, tile.pieces) == (3, 6, 4, 2)
    tile = Tile(128, 256, SMALL._replace(rows=4, columns=4, width=8))
    assert (tile.height, tile.threads, tile.across, tile.pieces) == (32, 256, 32, 8)
    with pytest.raises(ValueError, match="d_key is 129; backend 'cuda' has memories with at most 128"):
        Tile(129, 7, SMALL)


def test_write_and_read(case):
    written, _ = delta_forward(case.as_heads(case.memory), *case.written_with(HERE, BEFORE), case.s.decay_first)
    recalled = nan(case.dtype, SLOTS * B, case.s.HU)
    expected = {
        "memory": flat(written),
        "recalled": changed(recalled, HERE, flat(recall(written, case.address("query", HERE)[0]))),
    }
    arguments = {"batch": B, **case.params, "memory": case.memory, "recalled": recalled}
    case.run("write_and_read", arguments, expected)


def test_read(plain):
    recalled = nan(plain.dtype, SLOTS * B, plain.s.HU)
    found = flat(recall(plain.as_heads(plain.memory), plain.address("query", HERE)[0]))
    arguments = {"query_bias": plain.query_bias, "memory": plain.memory, "recalled": recalled}
    plain.run("read", arguments, {"recalled": changed(recalled, HERE, found)})


@pytest.mark.parametrize("n_steps", [1, 2])
def test_replay(case, n_steps):
    """From row 1 of what was kept on; what is beyond the segment stays."""
    [kept] = normal("kept", case.dtype, (B + 2, case.memory.shape[1]))
    states, memory = nan(case.dtype, 3 * B + 1, kept.shape[1]), case.as_heads(kept[1 : 1 + B])
    found = [memory]
    for step in range(n_steps):
        rows, before = (np.s_[start : start + B] for start in (FIRST + step * B, FIRST + step * B - B))
        found.append(delta_forward(found[-1], *case.written_with(rows, before), case.s.decay_first)[0])
    expected = changed(states, np.s_[: (n_steps + 1) * B], flat(np.concatenate(found)))
    arguments = {"n_steps": n_steps, "batch": B, "kept": kept, "kept_first": 1, "states": states}
    arguments |= {name: case.params[name] for name in ("key_bias", "decay_bias", "log_rate")}
    case.run("replay", arguments, {"states": expected})


def test_write_and_read_back(case):
    """The pieces' shares add up to the gradient; the value's is whole at once."""
    s, n, M = case.s, case.pieces * B, case.memory.shape[1]
    states, d_memory, d_recalled = normal("way back", case.dtype, (3 * B, M), (B, M), (SLOTS * B, s.HU))
    shares = {"d_key": (n, s.HK), "d_query": (n, s.HK), "d_beta": (n, H), "d_decay": (n, H)}
    shares = {name: nan(case.dtype, *shape) for name, shape in shares.items()}
    memory, d_written = case.as_heads(states[STEP * B : STEP * B + B]), case.as_heads(d_memory)
    d_r, query = exactly(d_recalled[HERE])[0].reshape(B, H, -1), case.address("query", HERE)[0]
    written, cache = delta_forward(memory, *case.written_with(HERE, BEFORE), s.decay_first)
    expected = delta_backward(d_written + outer(query, d_r), cache, s.decay_first)
    d_M, d_key, d_value, d_beta, d_decay = expected
    d_query = np.einsum("bhku,bhu->bhk", written, d_r)

    arguments = [FIRST, STEP, B, case.pre.copy(), *case.params.values(), states, d_recalled, d_memory.copy()]
    kernel, grid = case.kernels.write_and_read_back, (B * H, case.pieces)
    turns.launch(kernel.function, grid, case.tile.threads, *arguments, *shares.values())
    same(arguments[3], changed(case.pre, (HERE, case.at["value"]), flat(d_value)), case.dtype)
    same(arguments[-1], flat(d_M), case.dtype)
    for name, exact in (("d_key", d_key), ("d_query", d_query), ("d_beta", d_beta), ("d_decay", d_decay)):
        size = shares[name].shape[1]
        same(case.of_pieces(shares[name], size).astype(case.dtype), flat(exact), case.dtype)


def test_read_back(plain):
    """It reads the memory after the step, and adds to its gradient."""
    s = plain.s
    states, d_memory, d_recalled = normal(
        "way back", plain.dtype, (3 * B, H * s.K * s.U), (B, H * s.K * s.U), (8, s.HU)
    )
    d_query = nan(plain.dtype, plain.pieces * B, s.HK)
    memory = plain.as_heads(states[(STEP + 1) * B : (STEP + 2) * B])
    d_r, query = exactly(d_recalled[HERE])[0].reshape(B, H, -1), plain.address("query", HERE)[0]
    arguments = [FIRST, STEP, B, plain.pre.copy(), plain.query_bias, states, d_recalled, d_memory.copy(), d_query]
    kernel, grid = plain.kernels.read_back, (B * H, plain.pieces)
    turns.launch(kernel.function, grid, plain.tile.threads, *arguments)
    np.testing.assert_array_equal(arguments[3], plain.pre)
    same(arguments[-2], flat(plain.as_heads(d_memory) + outer(query, d_r)), plain.dtype)
    found = plain.of_pieces(d_query, s.HK).astype(plain.dtype)
    same(found, flat(np.einsum("bhku,bhu->bhk", memory, d_r)), plain.dtype)


def address_back(case, what, rows, d_address):
    """From the shares of the pieces to the gradient of what the product made."""
    address, cache, active = case.address(what, rows)
    d_address = case.of_pieces(d_address, case.s.HK).reshape(B, H, -1)
    return flat(ops.l2_norm_backward(d_address, cache) * active)


def added_up(case, d_address):
    """The shares, of which the first now has the sum of all."""
    return changed(d_address, np.s_[:B], case.of_pieces(d_address, case.s.HK))


def test_query_back(plain):
    [d_query] = normal("shares", plain.dtype, (plain.pieces * B, plain.s.HK))
    expected = {
        "pre": changed(plain.pre, (HERE, plain.at["query"]), address_back(plain, "query", HERE, d_query)),
        "d_query": added_up(plain, d_query),
    }
    arguments = {"batch": B, "n_pieces": plain.pieces, "query_bias": plain.query_bias, "d_query": d_query}
    plain.run("query_back", arguments, expected)


def test_addresses_back(plain):
    s, n = plain.s, plain.pieces * B
    d_key, d_query, d_beta, d_decay, d_log_rate = normal(
        "shares", plain.dtype, (n, s.HK), (n, s.HK), (n, H), (n, H), (B, H)
    )
    expected = plain.pre.astype(np.float64)
    expected[HERE, plain.at["query"]] = address_back(plain, "query", HERE, d_query)
    expected[BEFORE, plain.at["key"]] = address_back(plain, "key", BEFORE, d_key)
    beta = ops.sigmoid(exactly(plain.pre[HERE, plain.at["beta"]])[0])
    expected[HERE, plain.at["beta"]] = plain.of_pieces(d_beta, H) * beta * (1 - beta)
    x, rate, decay = plain.decay(HERE)
    d_log_decay = plain.of_pieces(d_decay, H) * decay
    expected[HERE, plain.at["decay"]] = -d_log_decay * rate * ops.sigmoid(x)
    arguments = {
        "batch": B, "n_pieces": plain.pieces, **plain.params, "d_key": d_key, "d_query": d_query, "d_beta": d_beta,
        "d_decay": d_decay, "d_log_rate": d_log_rate,
    }  # fmt: skip
    plain.run(
        "addresses_back", arguments,
        {
            "pre": expected,
            "d_key": added_up(plain, d_key),
            "d_query": added_up(plain, d_query),
            "d_log_rate": exactly(d_log_rate)[0] + d_log_decay * np.log(decay),
        },
    )  # fmt: skip


@pytest.mark.parametrize("active", [0, 1])
def test_addresses_of_no_and_of_one_active_entry(plain, active):
    """Without one, the address and its gradient are 0; with one, l2 is a step, and its gradient about 0."""
    plain.query_bias[:] = -100
    plain.query_bias[:, 1 : 1 + active] = 100
    recalled = nan(plain.dtype, SLOTS * B, plain.s.HU)
    found = flat(recall(plain.as_heads(plain.memory), plain.address("query", HERE)[0]))
    if not active:
        assert not found.any()
    plain.run(
        "read", {"query_bias": plain.query_bias, "memory": plain.memory, "recalled": recalled},
        {"recalled": changed(recalled, HERE, found)},
    )  # fmt: skip
    [d_query] = normal("shares", plain.dtype, (plain.pieces * B, plain.s.HK))
    pre, shares = plain.pre.copy(), d_query.copy()
    kernel = plain.kernels.query_back
    arguments = FIRST, B, plain.pieces, pre, plain.query_bias, shares
    turns.launch(kernel.function, B * H, plain.tuning.threads, *arguments)
    np.testing.assert_allclose(pre[HERE, plain.at["query"]], 0, atol=1e-6)
    beside = changed(plain.pre, (HERE, plain.at["query"]), pre[HERE, plain.at["query"]])
    np.testing.assert_array_equal(pre, beside.astype(plain.dtype))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("what", ["query", "key", "value", "beta", "decay"])
def test_what_is_no_number_reaches_what_is_read(plain, what):
    """A NaN in any input of head 0 of sequence 0 is in what that head reads, and in no other."""
    rows = BEFORE if what == "key" else HERE
    plain.pre[rows.start, plain.at[what].start] = np.nan
    memory, recalled = plain.memory.copy(), nan(plain.dtype, SLOTS * B, plain.s.HU)
    arguments = [FIRST, B, plain.pre, *plain.params.values(), memory, recalled]
    kernel, grid = plain.kernels.write_and_read, (B * H, plain.pieces)
    turns.launch(kernel.function, grid, plain.tile.threads, *arguments)
    found = recalled[HERE].reshape(B, H, -1)
    assert np.isnan(found[0, 0]).all() if what != "value" else np.isnan(found[0, 0, 0])
    assert np.isfinite(found[0, 1]).all() and np.isfinite(found[1]).all()
