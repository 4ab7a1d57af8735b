"""What the trainer asks of a task."""

from gpn_ref.config import TrainConfig
from gpn_ref.text.recall import RecallConfig
from gpn_ref.training.tasks import RecallTask


def test_evaluations_of_recall_take_each_gap_once_and_fewer_rows_of_long_sequences():
    task = RecallTask(RecallConfig(pairs=4, gaps=(0, 0, 4, 10_000)))
    assert "a gap of 0, 4, 10000 tokens" in task.describe()["task"]
    shapes = [targets.shape for _, targets in task.validation(TrainConfig()).batches]
    assert shapes == [(256, 16), (256, 20), (7, 10_016)]  # 2 ** 16 tokens or a few more
