"""Where each tensor of the official implementations has its place in ours."""

HEAD = [
    (r"post_mp\.FC_layers\.0\.", "head.mlp.0."),
    (r"post_mp\.FC_layers\.1\.", "head.mlp.2."),
    (r"post_mp\.FC_layers\.2\.", "head.mlp.4."),
]

GRIT = [
    (r"encoder\.node_encoder\.encoder\.weight", "node_encoder.raw.embedding.weight"),
    (r"encoder\.edge_encoder\.encoder\.weight", "edge_encoder.embedding.weight"),
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
    *HEAD,
]

GPS_BODY = [
    (r"encoder\.node_encoder\.encoder1\.encoder\.", "node_encoder.raw.embedding."),
    (r"encoder\.node_encoder\.encoder2\.raw_norm\.", "node_encoder.parts.RWSE.raw_norm."),
    (r"encoder\.node_encoder\.encoder2\.pe_encoder\.", "node_encoder.parts.RWSE.linear."),
    (r"(layers\.\d+)\.norm1_local\.", r"\1.norm_local."),
    (r"(layers\.\d+)\.norm1_attn\.", r"\1.norm_attention."),
    (r"(layers\.\d+)\.norm2\.", r"\1.norm_ffn."),
    (r"(layers\.\d+)\.ff_linear1\.", r"\1.ffn.0."),
    (r"(layers\.\d+)\.ff_linear2\.", r"\1.ffn.3."),
    *HEAD,
]

GPS = [
    (r"encoder\.edge_encoder\.encoder\.", "edge_encoder.raw.embedding."),
    (r"(layers\.\d+)\.local_model\.nn\.", r"\1.local.mlp."),
    (r"(layers\.\d+)\.self_attn\.in_proj_", r"\1.attention.qkv."),
    (r"(layers\.\d+)\.self_attn\.out_proj\.", r"\1.attention.out."),
    *GPS_BODY,
]

CSA = [
    (r"encoder\.edge_encoder\.type_encoder\.0\.encoder\.", "pair_encoder.raw.embedding."),
    (r"encoder\.edge_encoder\.type_encoder\.1\.encoder\.", "pair_encoder.kind."),
    (r"encoder\.edge_encoder\.encoder2\.encoder\.", "pair_encoder.pairs.linear."),
    (r"encoder\.edge_encoder\.shared_edge_encoder\.attention_encoder\.", "pair_score."),
    (r"encoder\.edge_encoder\.shared_edge_encoder\.value_encoder\.", "pair_value."),
    (r"(layers\.\d+)\.self_attn\.Q\.", r"\1.attention.query."),
    (r"(layers\.\d+)\.self_attn\.K\.", r"\1.attention.key."),
    (r"(layers\.\d+)\.self_attn\.V\.", r"\1.attention.value."),
    (r"(layers\.\d+)\.linear_attn\.", r"\1.attention.out."),
    *GPS_BODY,
]
