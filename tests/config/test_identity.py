"""What identifies a run: keys that came later leave the runs from before them as they were."""

from graphgps_spse.config.identity import differing_keys, identity_of


def test_keys_of_later_encodings_count_only_where_the_encoding_is_on():
    before = {"posenc_LapPE": {"enable": False, "dim_pe": 8}}
    off = before | {"posenc_PPR": {"enable": False, "alphas": [0.1]}}
    assert identity_of(off) == identity_of(before) == {"posenc_LapPE.enable": False, "posenc_LapPE.dim_pe": 8}
    on = before | {"posenc_PPR": {"enable": True, "alphas": [0.1]}}
    assert identity_of(on)["posenc_PPR.alphas"] == [0.1]
    assert [key for key, *_ in differing_keys(before, on)] == ["posenc_PPR.alphas", "posenc_PPR.enable"]


def test_user_data_of_earlier_versions_were_not_standardised():
    """Seeds with and without standardised targets must not meet in one experiment; elsewhere nothing changed."""
    for form in ("smiles", "folder"):
        earlier = {"dataset": {"format": form}}
        assert not differing_keys(earlier, {"dataset": {"format": form, "standardise": "off"}})
        (found,) = differing_keys(earlier, {"dataset": {"format": form, "standardise": "auto"}})
        assert found == ("dataset.standardise", None, "auto")
    assert not differing_keys(
        {"dataset": {"format": "PyG-ZINC"}}, {"dataset": {"format": "PyG-ZINC", "standardise": "auto"}}
    )


def test_a_section_of_a_plugin_without_a_switch_counts():
    """Only an encoding that is off does not; a positional encoder may have a section with such a name."""
    one, other = ({"posenc_Scaled": {"scale": scale}, "posenc_HKdiagSE": {"enable": False}} for scale in (1.0, 9.0))
    assert identity_of(one) != identity_of(other) and "posenc_HKdiagSE.enable" not in identity_of(one)
