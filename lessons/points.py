"""The points of each part, the weight of each exercise in the course, and what it may import beside numpy and math."""

from typing import NamedTuple


class Exercise(NamedTuple):
    weight: int  # percent of the course; together they are 100
    parts: dict  # function -> points
    imports: tuple = ()  # modules, or names in modules


EXERCISES = {
    "01": Exercise(5, {"join_pair": 3, "bits_per_byte": 1, "bigram": 4}),
    "02": Exercise(8, {"ground": 2, "predict": 3, "forward": 3}),
    "03": Exercise(6, {"log_softmax": 2, "cross_entropy": 2, "mean_loss_backward": 3}),
    "04": Exercise(
        6,
        {"numeric_gradient": 3, "slope_along": 2, "relative_error": 2},
        ("gpn_ref.reference.ops.cross_entropy_forward",),
    ),
    "05": Exercise(8, {"rms_norm_backward": 3, "bare_gate_backward": 2, "ffn_backward": 5}),
    "06": Exercise(10, {"loop_backward": 4, "truncated": 3, "left": 2}),
    "07": Exercise(10, {"write": 2, "recalled_after": 3, "read_text": 4}),
    "08": Exercise(10, {"write_backward": 5, "decay_backward": 3, "first_memory_backward": 4}),
    "09": Exercise(8, {"adamw_step": 4, "clip": 2, "learning_rate_at": 2}),
    "10": Exercise(6, {"with_temperature": 2, "top_p": 2, "generate": 3}),
    "11": Exercise(7, {"hoisted": 3, "stacked": 3, "write_and_read": 4}),
    "12": Exercise(
        6,
        {"column_sums": 3, "weight_gradient": 3, "write_and_read": 4},
        ("lessons.little_gpu.kernel",),
    ),
    "13": Exercise(5, {"left_on_average": 2, "last_read": 2, "effect": 1}),
    "14": Exercise(5, {"attention_forward": 4, "transformer_params": 1, "matched_width": 2}),
}
