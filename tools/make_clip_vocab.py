#!/usr/bin/env python3
"""Makes CLIP's tokenizer folder (vocab.json, merges.txt) from the vocabulary that open_clip ships.

    make_clip_vocab.py OUT [bpe_simple_vocab_16e6.txt.gz]

Without the second argument the file of the installed open_clip package is taken; the package is
located, not imported.
"""

import argparse
import gzip
import importlib.util
import json
import pathlib

VOCABULARY = 49408  # 256 bytes, the same at the end of a word, merges, begin and end of text
SPECIAL = ["<|startoftext|>", "<|endoftext|>"]


def byte_alphabet():
    """One printable character for each byte, in CLIP's order: printable bytes come first."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return [chr(b) for b in printable] + [chr(256 + i) for i in range(len(others))]


def default_source():
    spec = importlib.util.find_spec("open_clip")
    if spec is None:
        raise SystemExit("open_clip is not installed; name its bpe_simple_vocab_16e6.txt.gz")
    return pathlib.Path(spec.origin).parent / "bpe_simple_vocab_16e6.txt.gz"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("source", type=pathlib.Path, nargs="?")
    arguments = parser.parse_args()
    with gzip.open(arguments.source or default_source(), "rt", encoding="utf-8") as file:
        lines = file.read().split("\n")
    count = VOCABULARY - 2 * 256 - len(SPECIAL)
    merges = lines[1 : 1 + count]  # the first line is a title
    if len(merges) != count or any(len(line.split(" ")) != 2 for line in merges):
        raise SystemExit(f"not CLIP's vocabulary: {count} lines of two words expected")
    alphabet = byte_alphabet()
    tokens = alphabet + [c + "</w>" for c in alphabet]
    tokens += [merge.replace(" ", "") for merge in merges] + SPECIAL
    arguments.out.mkdir(parents=True, exist_ok=True)
    vocabulary = {token: i for i, token in enumerate(tokens)}
    if len(vocabulary) != VOCABULARY:
        raise SystemExit(f"not CLIP's vocabulary: {len(vocabulary)} different tokens")
    vocabulary_text = json.dumps(vocabulary, ensure_ascii=False)
    merges_text = "\n".join(["#version: 0.2", *merges, ""])
    (arguments.out / "vocab.json").write_text(vocabulary_text, encoding="utf-8")
    (arguments.out / "merges.txt").write_text(merges_text, encoding="utf-8")


if __name__ == "__main__":
    main()
