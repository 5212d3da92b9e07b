#!/usr/bin/env python3
"""Makes tests/data/tokenizers: small tokenizers, trained on the sample pairs with the normalisers, pre-tokenizers and
post-processors that each family's tokenizer.json has, and what Hugging Face's library makes of texts with them.

    make_tokenizers.py OUT     needs the packages tokenizers (0.23) and sentencepiece (for a table of characters)
"""
import base64, io, json, lzma, os, random, sys
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

OUT = sys.argv[1]
HERE = os.path.dirname(os.path.abspath(__file__))
MNLI = os.path.join(HERE, "../../../models/glue/mnli-dev-matched-num.tsv.xz")

ROWS = [line.rstrip("\n").split("\t")[1:3] for line in lzma.open(MNLI, "rt", encoding="utf-8", newline="\n")][1:]
FOREIGN = [
    "Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter en canoë.", "Die Straße über den Fluß, 123 € + ½!",
    "Съешь же ещё этих мягких французских булок", "Ζαφείρι δέξου πάγκαλο, βαθῶν ψυχῆς τὸ σῆμα", "我能吞下玻璃而不伤身体。",
    "日本語のテキスト、カタカナとひらがな。", "한국어 문장입니다", "नमस्ते दुनिया", "مرحبا بالعالم", "😀 🎉 👩‍👩‍👧 ok"
]
TEXTS = [text for row in ROWS for text in row] + FOREIGN * 30

WORDS = [
    "the", "cat's", "don't", "we'LL", "I'M", "naïve", "e\u0301te\u0301", "ΟΔΟΣ", "ΑΣ", "İstanbul", "ǅ", "ß", "ﬁne", "Ⅷ",
    "½", "x²", "１２３", "ＡＢＣ", "한국", "\u1112\u1161\u11ab", "漢字", "カﾞ", "゛", "ｶﾞ", "\U0001f600", "👩\u200d👩\u200d👧", "🇫🇷🇩🇪",
    "☺\ufe0f", "a\u0300\u0316\u0301b", "q\u0307\u0323", "\u0344", "\u0958", "क्ष", "न\u093c", "ที่", "\u200b", "\u00ad",
    "\ufeff", "\u2028", "\u2029", "\u0085", "\u00a0", "\u3000", "\u202f", "\u1680", "\u180e", "\t", "\n", "\r\n",
    "\x0b", "\x0c", "\x1c", "\x00", "\x01", "\x7f", "\u0080", "\ufffd", "\ufffe", "\U0010ffff", "\ue000", "\U000e0041",
    "``quoted''", "$9.99", "C++", "a_b", "—–-", "…", "«x»", "¿?", "٣", "१२", "Ⅳ", "①", "㎏", "㈱", "℃", "Å", "Å",
    "\u03d3", "ẛ̣", "ſ", "K", "[SEP]", "[CLS]", "[MASK]", " [MASK] ", "[UNK]", "[PAD]", "<s>", "</s>", "<mask>",
    "<unk>", "<pad>", "[sep]", "##a", "##", "▁", "▁the", "Ġthe", "'s", "'", "''", " 's", "'re've'll", "  ", "   ",
    "\u0301", "|||EMAIL|||", "<0x41>", "NEWWORD", "newword", "newwords", "\U0001d400", "\u0f73", "\ufb1d", "\u2126",
    "\ud7a3", "\uac00\u11a8", "\U0002f81a", "\u0149", "\u1e9e", "\u0587", "\u01c4", "\u13a0", "\uab70", "\u0345",
    "\u1fb3", "\u1f88", "\u2460", "\u3300", "\u32ff", "\u0ccd\u0cb0", "\u0600"
]


def nasty():
    texts = [
        "", " ", "  ", "\n", "\t \u00a0", "a", "A b", " a ", "a" * 99, "a" * 100, "a" * 101, "b" * 300, "é" * 150,
        "漢" * 40, "😀" * 30, "the " * 30, "\u0301" * 5, "a" + "\u0301\u0323" * 20, "." * 50, " " * 40 + "x",
        "x" + " " * 40, "[MASK][MASK] [MASK]", "x [SEP] y", "x[SEP]y", "<s>a</s>", "a <mask> b", "a<mask>b", " <mask>",
        "\r\n\r\n", "a\r\nb", "don't can't", "HELLO World", "New\u2003York", "tab\tnew\nline", "mixed汉字and한글",
        "1234567890", "3.14159", "e-mail@host.org", "NEWWORD newword NewWord xnewword", "x  NEWWORD  y", "a|||EMAIL|||b"
    ] + WORDS + FOREIGN
    draw = random.Random(7)
    for _ in range(260):
        texts.append(draw.choice(["", " ", ""]).join(draw.choice(WORDS) + draw.choice(["", " ", " ", "  "])
                                                     for _ in range(draw.randint(1, 9))))
    alphabet = [c for c in range(0x3000) if not 0xd800 <= c < 0xe000]
    for _ in range(120):
        texts.append("".join(chr(draw.choice(alphabet)) for _ in range(draw.randint(1, 12))))
    return [t.encode("utf-8", "ignore").decode() for t in texts]


def charsmap(rule):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(
        TEXTS[:2000]), model_writer=model, vocab_size=300, character_coverage=0.99, normalization_rule_name=rule,
                                             minloglevel=9, num_threads=1)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    return proto.normalizer_spec.precompiled_charsmap


def bert_template(cls="[CLS]", sep="[SEP]", ids=(2, 3), types=(0, 1), double=False):
    middle = f" {sep}:{types[0]}" if double else ""
    return processors.TemplateProcessing(single=f"{cls}:0 $A:0 {sep}:0",
                                         pair=f"{cls}:0 $A:0 {sep}:0{middle} $B:{types[1]} {sep}:{types[1]}",
                                         special_tokens=[(cls, ids[0]), (sep, ids[1])])


BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def wordpiece(lowercase, strip_accents=None, specials=BERT, unknown="[UNK]"):
    t = Tokenizer(models.WordPiece(unk_token=unknown))
    t.normalizer = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=strip_accents,
                                              lowercase=lowercase)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(
        TEXTS,
        trainers.WordPieceTrainer(vocab_size=1100, special_tokens=specials, show_progress=False, limit_alphabet=250))
    return t


def byte_level(specials, normalizer=None, prefix=False, size=900):
    t = Tokenizer(models.BPE())
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=size, special_tokens=specials, show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def unigram(normalizer, pre_tokenizer, specials, unknown):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizer
    t.train_from_iterator(TEXTS, trainers.UnigramTrainer(vocab_size=900, special_tokens=specials, unk_token=unknown,
                                                         show_progress=False, max_piece_length=12))
    return t


def families():
    nfkc, nfkc_cf = (normalizers.Precompiled(charsmap(rule)) for rule in ("nmt_nfkc", "nmt_nfkc_cf"))
    runs = lambda content: normalizers.Replace(Regex(" {2,}"), content)
    mark = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    t = wordpiece(True)
    t.post_processor = bert_template()
    yield "bert", t  # also DistilBERT and ELECTRA
    t = wordpiece(False)
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    t.add_tokens([AddedToken("NEWWORD", single_word=True), AddedToken("|||EMAIL|||", normalized=True)])
    yield "bert-cased", t
    t = wordpiece(True, specials=ROBERTA, unknown="<unk>")
    t.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    t.post_processor = bert_template("<s>", "</s>", (0, 2), double=True)
    yield "mpnet", t
    t = byte_level(ROBERTA)
    t.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
    yield "roberta", t
    t = byte_level(["|||IP_ADDRESS|||", "<|padding|>"] + BERT, normalizers.NFC())
    t.add_tokens([AddedToken(" " * n, normalized=True)
                  for n in range(8, 1, -1)] + [AddedToken("|||EMAIL|||", normalized=True)])
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True)])
    t.post_processor = bert_template(ids=(4, 5), types=(0, 0))
    yield "modernbert", t
    t = unigram(normalizers.Sequence([nfkc, normalizers.Strip(left=False, right=True), runs("▁")]), mark,
                ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], "<unk>")
    t.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    t.post_processor = bert_template("<s>", "</s>", (0, 2), types=(0, 0), double=True)
    yield "xlm-r", t
    t = unigram(normalizers.Sequence([normalizers.Replace("\n", " "), nfkc_cf, runs(" ")]),
                pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), mark]),
                ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>", "<mask>"], "<unk>")
    t.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    t.post_processor = bert_template("<s>", "</s>", (5, 6), types=(0, 0), double=True)
    yield "camembert", t
    t = unigram(
        normalizers.Sequence([
            normalizers.Replace("``", '"'),
            normalizers.Replace("''", '"'),
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(), nfkc,
            runs(" ")
        ]), pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), mark]),
        ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], "<unk>")
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True)])
    t.post_processor = bert_template()
    yield "albert", t
    t = unigram(normalizers.Sequence([normalizers.Strip(), nfkc, runs(" ")]),
                pre_tokenizers.Sequence([pre_tokenizers.Punctuation(behavior="isolated"), mark]),
                ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"], "[UNK]")
    t.post_processor = bert_template(ids=(1, 2))
    yield "deberta-v3", t


def digest(rows):
    """FNV-1a, 64 bits, of the ids with the length in front of each row, 32 bits each, least significant byte first."""
    h = 0xcbf29ce484222325
    for ids in rows:
        for value in [len(ids)] + ids:
            for byte in value.to_bytes(4, "little"):
                h = (h ^ byte) * 0x100000001b3 % 2 ** 64
    return "%016x" % h


def main():
    os.makedirs(OUT, exist_ok=True)
    texts, draw = nasty(), random.Random(3)
    for name, t in families():
        cases = []
        for i, text in enumerate(texts):
            t.no_truncation()
            e = t.encode(text)
            cases.append({"text": text, "ids": e.ids})
            if i % 4:
                continue
            pair, most = draw.choice(texts), draw.choice([6, 8, 9, 16, 17, 64])
            t.enable_truncation(most, strategy="longest_first")
            e = t.encode(text, pair)
            cases.append({"text": text, "pair": pair, "most": most, "ids": e.ids, "types": e.type_ids})
        t.no_truncation()
        rows = [e.ids for e in t.encode_batch([tuple(row) for row in ROWS])]
        hashes = [digest(rows[i:i + 100]) for i in range(0, len(rows), 100)]
        with lzma.open(os.path.join(OUT, name + ".json.xz"), "wt", encoding="utf-8", preset=9) as f:
            f.write(t.to_str())
        with lzma.open(os.path.join(OUT, name + ".golden.xz"), "wt", encoding="utf-8", preset=9) as f:
            for case in cases:
                f.write(json.dumps(case) + "\n")
            f.write(json.dumps({"rows": len(rows), "hashes": hashes}) + "\n")
        print(name, t.get_vocab_size(), len(cases), "cases")


main()
