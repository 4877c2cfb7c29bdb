"""Suggestions for unknown keys: names of other frameworks, keys in other sections, and similar spellings."""

from collections.abc import Sequence
from difflib import get_close_matches

from graphgps_spse.errors import did_you_mean

ALIASES = {
    "optim.base_lr": ("lr", "learning_rate", "learningrate", "init_lr", "initial_lr", "max_lr", "peak_lr", "eta"),
    "optim.max_epoch": ("epoch", "epochs", "max_epochs", "num_epochs", "n_epochs", "nb_epochs", "total_epochs"),
    "optim.weight_decay": ("wd", "decay", "l2", "l2_reg", "weightdecay"),
    "optim.optimizer": ("opt", "optim", "optimiser", "optimizer_name"),
    "optim.scheduler": ("lr_scheduler", "schedule", "lr_schedule", "lr_policy", "scheduler_name"),
    "optim.num_warmup_epochs": ("warmup", "warmup_epochs", "num_warmup", "n_warmup", "lr_warmup"),
    "optim.clip_grad_norm": ("clip", "grad_clip", "clip_grad", "gradient_clip_val", "max_grad_norm", "clip_norm"),
    "optim.schedule_patience": ("patience", "lr_patience"),
    "train.batch_size": ("bs", "batch", "batchsize", "batch_sz", "train_batch_size", "per_device_train_batch_size"),
    "train.amp": ("fp16", "bf16", "mixed_precision", "precision", "use_amp"),
    "train.eval_period": ("eval_every", "eval_interval", "val_every", "check_val_every_n_epoch"),
    "train.ckpt_period": ("save_every", "save_interval", "checkpoint_every", "checkpoint_period"),
    "gt.dim_hidden": (
        *("hidden", "hidden_dim", "hidden_size", "hidden_channels", "d_model", "dim_model", "dim", "width"),
        *("emb_dim", "embed_dim", "embedding_dim", "dim_embed", "dim_h", "nhid", "channels"),
    ),
    "gt.layers": ("layer", "num_layers", "n_layers", "nlayers", "num_layer", "depth", "num_blocks"),
    "gt.n_heads": ("heads", "head_count", "num_heads", "nheads", "nhead", "attention_heads", "num_attention_heads"),
    "gt.dropout": ("drop", "dropout_rate", "drop_rate", "p_dropout", "dropout_p", "hidden_dropout"),
    "gt.attn_dropout": ("attention_dropout", "attn_drop", "dropout_attn", "attention_dropout_rate"),
    "gnn.act": ("activation", "act_fn", "activation_fn", "nonlinearity"),
    "model.graph_pooling": ("pool", "pooling", "readout", "global_pool"),
    "model.loss_fun": ("loss", "loss_fn", "criterion", "loss_function"),
    "dataset.format": ("dataset_name", "data", "dataset_class"),
    "dataset.dir": ("root", "data_dir", "data_root", "data_path", "dataset_dir"),
    "accelerator": ("device", "gpu", "gpus", "cuda", "accelerators"),
    "num_workers": ("workers", "n_workers", "dataloader_num_workers"),
    "num_threads": ("threads", "n_threads", "n_jobs"),
    "out_dir": ("output", "output_dir", "save_dir", "log_dir", "logdir", "results_dir", "default_root_dir"),
    "seed": ("random_seed", "random_state", "manual_seed"),
    "name": ("run_name", "exp_name", "experiment", "experiment_name"),
    "metric_best": ("metric", "monitor", "best_metric"),
}
"""Key -> names in other frameworks. Names that equal the last part of a key are found without an entry."""


def nearest_key(key: str, known: Sequence[str]) -> str:
    """Return " Did you mean 'x'?" with the most likely key, or an empty string."""
    last = key.rpartition(".")[2].lower()
    for candidates in (
        [name for name, aliases in ALIASES.items() if last in aliases and name in known],
        [name for name in known if name.rpartition(".")[2].lower() == last],
        [name for name in known if f".{last}." in f".{name}"],  # a section
    ):
        if candidates:
            close = get_close_matches(key, candidates, n=1 if "." in key else 3, cutoff=0.0)
            return f" Did you mean {' or '.join(repr(name) for name in close)}?"
    return did_you_mean(key, list(known))
