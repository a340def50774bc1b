"""Names of a network's inputs and outputs, as identifiers of Python and of C."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any


def python_names(names: Sequence[str], kind: str) -> list[str]:
    """Distinct names for keyword arguments, or for fields of a named tuple.

    Names that are valid stay as they are. Others get ``_`` for other characters than letters and
    digits, and ``_`` after a keyword of Python. Equal names get numbers.

    Args:
        names: The names in the model.
        kind: ``input`` or ``output``, which names that begin with a digit get as a prefix. A field
            of a named tuple must not begin with ``_``, so such outputs get it, too.
    """
    forbidden = (r"\d", r"[\d_]")[kind == "output"]

    def is_valid(name: str) -> bool:
        is_word = name.isidentifier() and not keyword.iskeyword(name)
        return is_word and not re.match(forbidden, name)

    def changed(name: str) -> str:
        word = re.sub(r"\W", "_", name)
        if not f"_{word}".isidentifier():
            word = re.sub(r"\W", "_", word, flags=re.ASCII)
        if not word or re.match(forbidden, word):
            word = f"{kind}_{word.lstrip('_')}"
        return f"{word}_" if keyword.iskeyword(word) else word

    return _distinct(names, is_valid, changed)


def c_names(names: Sequence[str]) -> list[str]:
    """Distinct names for the members of a structure in C and C++."""

    def is_valid(name: str) -> bool:
        return name.isascii() and name.isidentifier() and not _WORD_OF_C.fullmatch(name)

    def changed(name: str) -> str:
        return re.sub(r"\W|^(?=\d)", "_", name, flags=re.ASCII) + "_"

    return _distinct(names, is_valid, changed)


_WORD_OF_C = re.compile(
    r"alignas|alignof|and_eq|asm|auto|bitand|bitor|bool|case|catch|char|char8_t|char16_t|"
    r"char32_t|co_await|co_return|co_yield|compl|concept|const|const_cast|consteval|"
    r"constexpr|constinit|decltype|default|delete|do|double|dynamic_cast|enum|explicit|"
    r"export|extern|false|float|friend|goto|inline|int|long|mutable|namespace|new|noexcept|"
    r"not_eq|nullptr|operator|or_eq|private|protected|public|register|reinterpret_cast|"
    r"requires|restrict|short|signed|sizeof|static|static_assert|static_cast|struct|switch|"
    r"template|this|thread_local|throw|true|typedef|typeid|typename|typeof|union|unsigned|"
    r"using|virtual|void|volatile|wchar_t|xor|xor_eq|linux|unix|NULL"
)
"""Keywords of C and C++ that are no keywords of Python, and macros of compilers for Linux."""


def _distinct(
    names: Sequence[str], is_valid: Callable[[str], bool], changed: Callable[[str], str]
) -> list[str]:
    """The names, of which invalid and repeated ones are changed until they are distinct."""
    results: list[str] = []
    valid = set(filter(is_valid, names))
    for name in names:
        word = result = name if name in valid else changed(name)
        number = 1
        while result in results or (result in valid and result != name):
            number += 1
            result = f"{word}_{number}"
        results.append(result)
    return results


def signature_with_names(
    signature: Mapping[str, Sequence[Mapping[str, Any]]], inputs: Sequence[str], returned: Any
) -> Mapping[str, Any]:
    """The entries of a manifest about inputs and outputs, with their names.

    Args:
        signature: The shape and the dtype of each of the ``inputs`` and ``outputs``.
        inputs: The names of the inputs in the model.
        returned: The result of a call, as ``ImportedNetwork.returned`` describes it.
    """
    outputs = list(_leaves(returned))
    numbers = iter(range(len(outputs)))

    def numbered(part: Any) -> Any:
        if isinstance(part, str):
            return next(numbers)
        keys = part.get("keys")
        if keys is not None and part["type"] != "dict":
            keys = python_names(keys, "output")
        return {**part, "keys": keys, "parts": [numbered(inner) for inner in part["parts"]]}

    described = {"inputs": (inputs, "input"), "outputs": (outputs, "output")}
    entries = {
        key: [
            {"name": name, "source": source, "shape": tensor["shape"], "dtype": tensor["dtype"]}
            for name, source, tensor in zip(
                python_names(sources, kind), sources, signature[key], strict=True
            )
        ]
        for key, (sources, kind) in described.items()
    }
    return {**entries, "returns": numbered(returned)}


def output_names(returned: Any) -> list[str]:
    """The name of each output, from the structure ``ImportedNetwork.returned``."""
    return python_names(list(_leaves(returned)), "output")


def _leaves(returned: Any) -> Iterator[str]:
    """The names of all outputs in the model, in their order."""
    if isinstance(returned, str):
        yield returned
    else:
        for part in returned["parts"]:
            yield from _leaves(part)
