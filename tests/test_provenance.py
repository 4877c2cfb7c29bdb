"""What a checkpoint stores of its data: equal for runs of earlier versions, which know fewer fields."""

from dataclasses import replace
from types import SimpleNamespace

from training.tiny_run import spec

from graphgps_spse.provenance import provenance_of

FIELDS = (
    *("name", "level", "task", "num_targets", "num_classes", "metric", "node_input", "edge_input"),
    *("directed", "target_names", "may_miss_targets"),
)


def data_of(dataset_spec):
    about = provenance_of(SimpleNamespace(dataset=SimpleNamespace(spec=dataset_spec), encodings=[]))
    return {key: value for key, value in about.items() if key.startswith("data.")}


def test_fields_that_earlier_versions_lack_are_left_out_unless_they_have_a_value():
    plain = data_of(spec())
    assert plain.keys() == {f"data.{field}" for field in FIELDS}
    assert data_of(replace(spec(), own_data=True)) == plain, "runs on own data of earlier versions go on"
    named = data_of(replace(spec("classification"), class_names=("a", "b"), loss="weighted_cross_entropy"))
    assert named["data.class_names"] == ["a", "b"] and named["data.loss"] == "weighted_cross_entropy"
