"""Tasks stop where their work together exceeds the cap, and after Ctrl-C."""

import numpy as np

from graphgps_spse.counting.work_meter import WorkMeter, must_stop


def test_tasks_stop_beyond_the_cap_and_after_ctrl_c():
    meter = WorkMeter(np.array([4, 6]), 10, np.array([1 << 60]))
    assert not must_stop(meter)
    meter.spent[1] += 1
    assert must_stop(meter)
    assert must_stop(WorkMeter(np.array([0]), 10, np.array([-1])))
