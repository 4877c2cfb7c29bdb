"""Where each tensor of the official GRIT implementation has its place in ours."""

import re

NAMES = [
    (r"encoder\.(node|edge)_encoder\.encoder\.weight", r"\1_encoder.embedding.weight"),
    (r"rrwp_abs_encoder\.fc\.weight", "node_encoding.weight"),
    (r"rrwp_rel_encoder\.fc\.weight", "pair_encoding.weight"),
    (r"(layers\.\d+)\.deg_coef", r"\1.degree"),
    (r"(layers\.\d+\.attention)\.Aw", r"\1.logit"),
    (r"(layers\.\d+\.attention)\.VeRow", r"\1.mix"),
    (r"(layers\.\d+\.attention)\.Q\.", r"\1.query."),
    (r"(layers\.\d+\.attention)\.K\.", r"\1.key."),
    (r"(layers\.\d+\.attention)\.V\.", r"\1.value."),
    (r"(layers\.\d+\.attention)\.E\.", r"\1.pair."),
    (r"(layers\.\d+)\.O_h\.", r"\1.out_node."),
    (r"(layers\.\d+)\.O_e\.", r"\1.out_pair."),
    (r"(layers\.\d+)\.batch_norm1_h\.", r"\1.norm_node."),
    (r"(layers\.\d+)\.batch_norm1_e\.", r"\1.norm_pair."),
    (r"(layers\.\d+)\.batch_norm2_h\.", r"\1.norm_ffn."),
    (r"(layers\.\d+)\.FFN_h_layer1\.", r"\1.ffn.0."),
    (r"(layers\.\d+)\.FFN_h_layer2\.", r"\1.ffn.3."),
    (r"post_mp\.FC_layers\.0\.", "head.mlp.0."),
    (r"post_mp\.FC_layers\.1\.", "head.mlp.2."),
    (r"post_mp\.FC_layers\.2\.", "head.mlp.4."),
]


def our_name(official: str) -> str:
    """Return our name of an official parameter or buffer."""
    matches = [re.sub(pattern, name, official) for pattern, name in NAMES if re.match(pattern, official)]
    assert len(matches) == 1, official
    return matches[0]
