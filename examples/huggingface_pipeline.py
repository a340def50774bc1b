"""A pipeline of Hugging Face whose model computes with Chameleon.

    python examples/huggingface_pipeline.py

The model is small and has random weights, so that nothing is downloaded. With a model of your own,
only the line with ``compile`` is new.
"""

from __future__ import annotations

import torch
from chameleon_networks.api import compile as chameleon_compile
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Pipeline,
    PreTrainedTokenizerFast,
    pipeline,
)

WORDS = ("[PAD]", "[UNK]", "a", "bad", "day", "good", "is", "today")
PADDED = {"padding": "max_length", "truncation": True, "max_length": 16}  # one shape, one network


def classifier() -> Pipeline:
    """A pipeline that classifies texts."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
    )
    tokenizer = Tokenizer(WordLevel({word: at for at, word in enumerate(WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    return pipeline(
        "text-classification",
        model=BertForSequenceClassification(config).eval(),
        tokenizer=PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            pad_token="[PAD]",  # noqa: S106 - a word
            unk_token="[UNK]",  # noqa: S106 - a word
            model_input_names=["input_ids", "attention_mask"],
        ),
    )


def main() -> None:
    """Compare the answers of the pipeline before and after."""
    texts = ["today is a good day", "a bad day"]
    classify = classifier()
    before = classify(texts, **PADDED)
    example = classify.tokenizer(texts[0], return_tensors="pt", **PADDED)
    classify.model = chameleon_compile(classify.model, dict(example))
    for text, old, new in zip(texts, before, classify(texts, **PADDED), strict=True):
        print(f"{text}: {new['label']} {new['score']:.4f}, {old['score']:.4f} before")  # noqa: T201


if __name__ == "__main__":
    main()
