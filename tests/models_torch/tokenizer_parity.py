"""Captions and the ids that transformers' CLIPTokenizer gives them.

Makes FOLDER/tokenizer, FOLDER/tokenizer.json, FOLDER/captions and FOLDER/ids.

Each caption stands behind its length in bytes, four bytes little-endian; 77 ids of four bytes each.
"""

import pathlib
import random
import struct
import subprocess
import sys

from transformers import CLIPTokenizer

WRITTEN = [
    "", " ", "\t\r\n \u3000\u00a0", "a photo of a cat", "A Photo OF a CAT!!", "  spaces   inside  ",
    "it's, they're, I've, I'm, we'll, he'd, can't, 'tis, 'S, 'sound, ''s, x's's",
    "rock'n'roll 90's", "&amp; &lt;b&gt; &quot;quoted&quot; &#39;",
    "http://example.com/a?b=c&d=%20", "a\\b /c/ d_e-f --g", "$1,234.56 + 7% = 1e10",
    "<|endoftext|>", "<|startoftext|>", "a <|endoftext|> b", "a<|startoftext|>b<|endoftext|>c",
    "<|startoftext|><|endoftext|><|endoftext|>", "<|ENDOFTEXT|>!! x", "<|StartOfText|>s",
    "!<|EndOfText|>?", "<|endoftext|", "|endoftext|>", "<| endoftext |>", "<<|endoftext|>>",
    "\u00e9t\u00e9 caf\u00e9", "e\u0301te\u0301 cafe\u0301", "\u1e69 s\u0323\u0307 s\u0307\u0323",
    "A\u030a \u212b \u00c5", "\uac00\uac01 \u1100\u1161\u11a8", "Stra\u00dfe STRASSE \u1e9e",
    "\u0130stanbul I\u0307 \u0131 \u0130\u0130",
    "\u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2 \u039f\u0394\u039f\u03a3", "\ufb01nd \ufb04",
    "\u041c\u043e\u0441\u043a\u0432\u0430 \u0437\u0438\u043c\u043e\u0439",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u0661\u0662\u0663",
    "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0967\u0968\u0969 \u0915\u094d\u0937",
    "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 \u0e51\u0e52", "\u0ba4\u0bae\u0bbf\u0bb4\u0bcd",
    "\u1e00\u1e01", "\u732b\u306e\u5199\u771f\u3001\u7121\u6599",
    "\u30ab\u30bf\u30ab\u30ca \uff76\uff9e \uff21\uff22\uff23 \uff11\uff12",
    "\ud55c\uad6d\uc5b4 \uc0ac\uc9c4",
    "\u4e00\u4e8c\u4e09 \u3007 \u2160\u2163 \u00bd \u2460 x\u00b2",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 family",
    "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "\U0001f44d\U0001f3fd \u2764\ufe0f \U0001f1e9\U0001f1ea", "\U0001d49c\U0001d7d8 \U00020000",
    "zero\u200bwidth \u200djoin\u200cer \u2060word \ufeffbom",
    "soft\u00adhyphen \u2013 \u2014 \u2026 \u201cq\u201d \u2018s\u2019s",
    "\u202eright to left\u202c", "a\x00b \x01\x02\x1c\x1d\x1e\x1f c\x7fd\x80\x85e\x9f",
    "line\u2028sep\u2029para\u1680ogham\u180emvs\u202fnnbsp\u205fmmsp", "\v\f",
    "\ufffd \ufffe \U0010ffff \ue000 \U000f0000", "a" * 500, "cat " * 100, "1" * 100, "!" * 300,
    "\u0301" * 50, "\U0001f600" * 40,
    "supercalifragilisticexpialidocious pneumonoultramicroscopicsilicovolcanoconiosis",
    "word " * 74 + "edge case here", "word " * 75 + "<|endoftext|> x", "aa aaa aaaa aaaaa",
    "d'artagnan's l'\u00e9t\u00e9", "'re 're're", "x'RE Y'LL", "\u02bcs \u2019ll",
    "\u0345\u03b1\u0313\u0345", "\u0915\u093c \u0958",
]
ALPHABETS = [
    "abcdefghij klmnop qrstuvwxyz ", "ABC xyz 012 .,!?'-", "'srtvemld <|>endofstart",
    "\u0430\u0431\u0432\u0413\u0414 \u03b1\u03b2\u03a3\u03c2",
    "aeiou\u0300\u0301\u0308\u0323\u0327\u0328\u0345 ",
    "\u1100\u1161\u11a8\uac00 \u3042\u30a2\u4e2d\u6587",
    "\u0627\u0628\u0651\u064e\u0661 \u05d0\u05b7",
    "\u0915\u094d\u0930\u093f\u0967 \u0e01\u0e34\u0e51", "\U0001f600\u200d\ufe0f\U0001f3fd\u2640 a",
    " \t\n\u00a0\u2003\u3000\u0085a1!", "".join(map(chr, range(0x20, 0x250))),
    "".join(map(chr, range(0x2000, 0x2c00))),
]


def captions():
    rng = random.Random(20260101)
    made = list(WRITTEN)
    while len(made) < 300:
        alphabet = rng.choice(ALPHABETS)
        made.append("".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 60))))
    return made


def main(folder):
    root = pathlib.Path(__file__).resolve().parents[2]
    maker = root / "tools/make_clip_vocab.py"
    subprocess.run([sys.executable, maker, folder / "tokenizer"], check=True)
    tokenizer = CLIPTokenizer.from_pretrained(folder / "tokenizer")
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    with open(folder / "captions", "wb") as texts, open(folder / "ids", "wb") as ids:
        for caption in captions():
            raw = caption.encode("utf-8")
            texts.write(struct.pack("<I", len(raw)) + raw)
            encoded = tokenizer(caption, padding="max_length", max_length=77, truncation=True)
            ids.write(struct.pack("<77i", *encoded["input_ids"]))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
