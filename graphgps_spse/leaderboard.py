"""Predictions of a run as the files that OGB's leaderboard of PCQM4Mv2 takes."""

import logging
from pathlib import Path

from graphgps_spse.config import load_config
from graphgps_spse.data.opening import load_splits
from graphgps_spse.data.pcqm4mv2 import TEST_SPLITS, write_submission
from graphgps_spse.errors import ConfigError, DataError
from graphgps_spse.files import new_folder
from graphgps_spse.parts import build_parts
from graphgps_spse.trained_runs import TrainedRun

log = logging.getLogger(__name__)


def predict_submission(run: TrainedRun, folder: Path) -> list[Path]:
    """Write and return the files for OGB's leaderboard of PCQM4Mv2: test-dev and test-challenge."""
    if run.cfg.dataset.format != "OGB" or not run.cfg.dataset.name.startswith("PCQM4Mv2-"):
        raise ConfigError(f"{run.path} was trained on {run.parts.dataset.spec.name}; --submission is for PCQM4Mv2")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} already exists; name another folder")
    data = run.cfg.dataset
    overrides = ["dataset.name=PCQM4Mv2-inference", "train.mode=eval", f"dataset.dir={data.dir}"]
    overrides.append(f"dataset.trust_data={data.trust_data}")
    inference = build_parts(load_config(run.path / "config.yaml", overrides)).dataset
    splits = load_splits(inference)
    predictions = {part: run.predict(splits[part], run.parts.storage)[:, 0].numpy() for part in TEST_SPLITS}
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(folder) as unfinished:  # both files or neither
            files = [folder / file.name for file in write_submission(predictions, unfinished)]
    except OSError as err:
        raise DataError(f"{folder} cannot be written ({err.strerror}); name another folder") from err
    log.info("written for OGB's leaderboard: %s", ", ".join(str(file) for file in files))
    return files
