"""From runs to tables: the result record, its statistics and reports. Never imports models or training."""
