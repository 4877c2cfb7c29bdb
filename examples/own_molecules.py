# %% [markdown]
# # Your own molecules
#
# From a CSV file of molecules to a trained model and predictions for new molecules, in a minute on a laptop.
#
# The target here is the octanol-water partition coefficient log P as RDKit computes it (Wildman and Crippen, 1999), so
# that the notebook needs no download. Replace the file with your measurements.

# %%
import csv

import matplotlib.pyplot as plt
from rdkit import Chem
from rdkit.Chem import Crippen, Draw

import graphgps_spse as gs

SMILES = """
CCO CCCO CCCCO CCCCCO CC(C)O CC(C)CO OCCO CCOCC CCOC COCCOC CC=O CCC=O CC(=O)C CC(=O)CC CC(=O)O CCC(=O)O CC(=O)OC
CC(=O)OCC CCN CCCN CCNCC CC(N)C NCCN CCCC CCCCC CCCCCC CC(C)C CC(C)(C)C C=CC C=CCC C#CC CCCl CCCCl CCBr ClCCl CC#N
c1ccccc1 Cc1ccccc1 CCc1ccccc1 Cc1ccc(C)cc1 Oc1ccccc1 Nc1ccccc1 Clc1ccccc1 Fc1ccccc1 COc1ccccc1 OC(=O)c1ccccc1
c1ccc2ccccc2c1 c1ccncc1 Cc1ccncc1 c1ccoc1 c1ccsc1 c1cc[nH]c1 C1CCCCC1 C1CCCC1 CC1CCCCC1 OC1CCCCC1 C1CCOCC1 C1CCNCC1
C1COCCN1 CN1CCCC1 O=C1CCCCC1 O=C1CCCN1 NC(=O)c1ccccc1 CC(=O)Nc1ccccc1 c1ccc(-c2ccccc2)cc1 C1CC2CCC1CC2
""".split()

with open("molecules.csv", "w", newline="") as file:
    rows = ((smiles, round(Crippen.MolLogP(Chem.MolFromSmiles(smiles)), 4)) for smiles in SMILES)
    csv.writer(file).writerows([("smiles", "logp"), *rows])

Draw.MolsToGridImage([Chem.MolFromSmiles(smiles) for smiles in SMILES[-6:]], molsPerRow=6, subImgSize=(150, 120))

# %% [markdown]
# ## Configure and train
#
# `random` puts 80 % of the molecules into the training split and 10 % each into validation and test. `posenc_SPSE` is
# the encoding: path counts up to length 8 for every pair of atoms. The model is a small GRIT. A real run has wider
# layers and several hundred epochs; `scripts/check_data.py` predicts the time of its encodings and the memory of a
# training step.

# %%
config = {
    "name": "logp",  # results/logp/<seed>
    "dataset": {
        "format": "smiles",
        "node_encoder_name": "Atom",
        "edge_encoder_name": "Bond",
        "smiles": {"file": "molecules.csv", "target_columns": ["logp"], "task": "regression", "split": "random"},
    },
    "posenc_SPSE": {"enable": True, "max_length": 8},
    "gnn.dim_inner": 32,
    "gt": {"layers": 2, "n_heads": 4, "dim_hidden": 32},
    "train.batch_size": 8,
    "optim": {"max_epoch": 20, "base_lr": 5e-3, "num_warmup_epochs": 2},
    "num_threads": 1,
}
run = gs.train(config, progress=True)

# %% [markdown]
# ## Learning curve
#
# The best epoch is the one with the lowest mean absolute error on validation. Its weights make all predictions.

# %%
curve = run.curve()
figure, axis = plt.subplots(figsize=(6, 3))
for split in ("train", "val", "test"):
    axis.plot(curve["epoch"], curve[f"{split}_mae"], label=split)
axis.set(xlabel="epoch", ylabel="mean absolute error of log P", yscale="log")
axis.legend()
plt.show()

# %%
{name: round(value, 3) for name, value in run.metrics["test"].items() if name in ("mae", "rmse", "r2", "spearman")}

# %% [markdown]
# ## Predict new molecules
#
# A text that is not a molecule keeps its row, and the column `error` states the reason.

# %%
new = ["CCCCCCO", "Cc1ccccc1C", "C1CCC2CCCCC2C1", "CCOC(=O)C", "not a molecule"]
predicted = run.predict(new)
predicted

# %%
truth = [Crippen.MolLogP(Chem.MolFromSmiles(smiles)) for smiles in new[:-1]]
figure, axis = plt.subplots(figsize=(3.5, 3.5))
axis.scatter(truth, predicted["logp_predicted"][: len(truth)])
axis.axline((0, 0), slope=1, color="gray", linewidth=1)
axis.set(xlabel="log P of RDKit", ylabel="predicted log P")
plt.show()

# %% [markdown]
# ## Next
#
# - `gs.load_run("results/logp/0")` opens the run again, and `scripts/report.py` compares runs.
# - `docs/own_data.md` explains bad rows, several targets, scaffold splits and metrics.
# - A fair comparison needs several seeds: a sweep file with `seeds: 10`.
