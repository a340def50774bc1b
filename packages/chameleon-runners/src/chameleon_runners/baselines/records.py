"""The baselines of this package, as records. Importing them imports no numerical library."""

from __future__ import annotations

from chameleon_core.plugins import NoOptions, PluginRecord

BASELINES = (
    PluginRecord(
        name="onednn",
        summary="oneDNN through PyTorch, the best of its layouts, weights prepacked",
        factory="chameleon_runners.baselines.onednn:OneDNNBaseline",
        options=NoOptions,
    ),
    PluginRecord(
        name="cudnn",
        summary="cuDNN and cuBLAS through PyTorch, the best of its layouts, TF32 off",
        factory="chameleon_runners.cuda.cudnn:CudnnBaseline",
        options=NoOptions,
    ),
)
