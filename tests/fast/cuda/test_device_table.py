"""The tables that a device check prints, of made-up findings."""

from gpn_ref.fast.cuda import device_table


def made_up():
    parity = {"case": "1 layer", "window": [5, 7], "precision": "float32", "products": "cublas", "discarded": 2}
    parity |= {"tensor": "logits", "error": 3e-6, "moved": [], "passed": True}
    memory = {"size": "130M", "B, H, K, U": [128, 15, 128, 256], "seconds": 1e-4, "bytes": 4e8}
    step = {"window": [128, 64], "rate": 8000.0, "seconds": 1.024, "bytes": 2**31, "times the floor": 1.5}
    return {
        "device": "A card, compute capability 9.0, driver 1.2.3",
        "date": "2026-01-02",
        "command": "python -m gpn_ref.fast.cuda.device_check",
        "versions": {"python": "3.12"},
        "seed": 5,
        "parity": [parity],
        "race": [{"tool": "racecheck", "told": "0 hazards", "passed": True}],
        "card": [{"bandwidth": 4e12, "product rate": 5e13, "products": "cublas", "product size": 4096}],
        "memory": [memory | {"kernel": name, "share": 0.75} for name in ("write_and_read", "write_and_read_back")],
        "training": [
            step | {"size": "130M", "parts": dict.fromkeys(device_table.STEP_PARTS, 0.1)},
            {"size": "130M", "window": [128, 512], "told": "the card's memory is too small"},
        ],
        "rivals": [
            {"size": "130M", "window": [128, 64], "rival": "jax", "rate": 4000.0},
            {"size": "130M", "window": [128, 64], "rival": "torch", "told": "not done in 60 s"},
        ],
    }


def test_the_table():
    found = made_up()
    lines = device_table.table(found)
    assert lines[0] == "A card, compute capability 9.0, driver 1.2.3; 2026-01-02; python 3.12; float32"
    for line in (
        "| parity, float32 | 1 checks, furthest 3.0e-06: logits, 1 layer; 2 points discarded; seed 5 |",
        "| racecheck | 0 hazards |",
        "| copy from the card to the card | 4,000 GB/s, read and written |",
        "| product of 4096³, float32, cublas | 50.0 TFLOP/s |",
        "| write_and_read | 128, 15, 128, 256 | 100.0 | 0.400 | 4,000 | 75% |",
        "| 130M | 128, 64 | 8,000 | 1.50 | 2.00 | 4,000 | not done in 60 s |",
        "| 130M | 128, 512 | the card's memory is too small |  |  |  |  |",
        "| 130M | 128, 64 | 100.00 | 100.00 | 100.00 | 100.00 | 100.00 | 100.00 | 1024.00 |",
        "goal: memory kernels at 70% of the copy bandwidth: met",
        "goal: within 2 times the larger floor at 130M: met",
        "goal: faster than JAX and PyTorch wherever they told a rate: met",
    ):
        assert line in lines, line
    assert not device_table.any_failed(found)
    columns = [line.count("|") for line in lines if line.startswith("|")]
    assert columns == [3] * 4 + [3] * 4 + [7] * 4 + [8] * 4 + [10] * 3  # every row as wide as its head


def test_goals_that_are_not_met():
    found = made_up()
    found["memory"][1]["share"] = 0.69
    found["training"][0]["times the floor"] = 2.1
    found["rivals"][0]["rate"] = 9000.0
    assert [line.rsplit(": ", 1)[1] for line in device_table.goals(found)] == ["not met"] * 3
    assert not device_table.any_failed(found)  # a goal is no check


def test_failures():
    found = made_up()
    found["parity"].append(found["parity"][0] | {"error": 1.0, "passed": False})
    assert device_table.any_failed(found)
    assert "| FAILED: 1 layer, [5, 7], float32, cublas | logits differs by 1.0e+00 |" in device_table.table(found)
    found = made_up()
    found["race"][0] |= {"told": "1 hazards", "passed": False}
    assert device_table.any_failed(found) and "| FAILED: racecheck | 1 hazards |" in device_table.table(found)


def test_a_check_that_could_not_be_made_is_told_and_fails():
    found = made_up()
    found["parity"].append({"case": "130M", "told": "the card's memory is too small"})
    assert device_table.any_failed(found)
    assert "| FAILED: 130M | the card's memory is too small |" in device_table.table(found)
