#!/bin/bash
# Folders that cannot be imported: each gives the right exit code, a message with place and reason, a hint where there
# is one, and leaves no files.
#
#   tests/frontend/huggingface/test_bad_folders.sh SKYCC FOLDERS
set -u
# shellcheck source=tests/common/test.sh
source "$(dirname "$0")/../../common/test.sh"
skycc=$1
bert=$2/bert
common=$(realpath "$(dirname "$0")/../../common")
enter_scratch_folder

# folder NAME [PYTHON]: a folder of that name as it should be, but for what the statements make of `config`.
folder() {
    mkdir "$1" && cp "$bert/config.json" "$bert/model.safetensors" "$1"
    [ -z "${2:-}" ] || /usr/bin/python3 - "$1/config.json" "$2" <<'END' || die "$2"
import json, sys
config = json.load(open(sys.argv[1]))
exec(sys.argv[2])
json.dump(config, open(sys.argv[1], "w"))
END
}

# refuse CODE PATTERN... -- FOLDER [OPTION...]
refuse() {
    local words=()
    while [ "$1" != -- ]; do
        words+=("$1")
        shift
    done
    shift
    expect "${words[@]}" -- "$skycc" import "$@" -o model.onnx
}

# Files
refuse 1 'nowhere: error: .*No such file' -- nowhere
touch file
refuse 1 'file: error: is not a folder' 'hint: name the folder' -- file
mkdir empty
refuse 1 'empty: error: has no config.json' 'hint:' -- empty
mkdir adapter && echo '{"peft_type": "LORA"}' >adapter/adapter_config.json
refuse 1 'adapter: error: has no config.json: it is an adapter of PEFT' 'hint: merge it.*merge_and_unload' -- adapter
folder absent && rm absent/model.safetensors
refuse 1 'absent: error: has neither model.safetensors nor' -- absent
folder shards && mv shards/model.safetensors shards/model-00001-of-00002.safetensors
refuse 1 "shards: error: has parts of the weights, such as 'model-00001-of" 'hint: copy model.safet' -- shards
folder pickle && mv pickle/model.safetensors pickle/pytorch_model.bin
refuse 1 'pickle: error: .*pickle' 'hint: convert it.*save_pretrained' -- pickle
folder text && echo "no tensors" >text/model.safetensors
refuse 1 'text/model.safetensors: error: is too short\|text/model.safetensors: error: is not a safetensors' -- text
folder cut && truncate -s 20000 cut/model.safetensors
refuse 1 'cut/model.safetensors: error: .*has data outside the file' 'hint: copy or download it again' -- cut
folder link && ln -sf "$bert/model.safetensors" link/model.safetensors
refuse 1 'link/model.safetensors: error: is a symbolic link out of the folder' 'hint:' -- link
folder directory && rm directory/model.safetensors && mkdir directory/model.safetensors
refuse 1 'directory/model.safetensors: error: is not a regular file' -- directory
expect 1 'skycc import' -- "$skycc" check empty
expect 1 'skycc import' -- "$skycc" check "$bert/model.safetensors"

# The library's cache holds links from snapshots/ to blobs/: skycc follows them.
mkdir -p cache/blobs cache/snapshots/main && cp "$bert/config.json" cache/blobs/1 &&
    cp "$bert/model.safetensors" cache/blobs/2
ln -s ../../blobs/1 cache/snapshots/main/config.json && ln -s ../../blobs/2 cache/snapshots/main/model.safetensors
"$skycc" import cache/snapshots/main -q -o model.onnx || fail "a snapshot of the cache"
"$skycc" import "$bert" -q -o other.onnx || fail "a folder"
"$skycc" import "$bert" -q -o again.onnx || fail "a folder again"
cmp other.onnx again.onnx || fail "the same folder gives other bytes"
rm model.onnx other.onnx again.onnx

# config.json
folder syntax && echo '{' >syntax/config.json
refuse 1 'syntax/config.json:[0-9:]* error: ' -- syntax
folder list && echo '[]' >list/config.json
refuse 1 'list/config.json: error: must be an object' -- list
folder untyped 'del config["model_type"]'
refuse 1 'untyped/config.json: error: model_type: is missing' 'hint: supported: bert, roberta' -- untyped
folder opt 'config["model_type"] = "opt"'
refuse 3 'opt/config.json: error: model_type: .*opt' 'hint: supported: bert, .*modernbert, deberta-v2' -- opt
folder sizeless 'del config["hidden_size"]'
refuse 1 'config.json: error: hidden_size: is missing' -- sizeless
folder huge 'config.update(hidden_size=2**62, vocab_size=-1, num_hidden_layers="2")'
refuse 1 'hidden_size: must be from' 'vocab_size: must be from' 'num_hidden_layers: must be an integer' -- huge
folder uneven 'config["num_attention_heads"] = 3'
refuse 1 'num_attention_heads: does not divide' -- uneven
folder activation 'config["hidden_act"] = "mish"'
refuse 3 "hidden_act: the activation 'mish'" 'hint: there are gelu' -- activation
folder relative 'config["position_embedding_type"] = "rope"'
refuse 3 'position_embedding_type' -- relative
folder decoder 'config["is_decoder"] = True'
refuse 3 'is_decoder: this kind of model is supported as an encoder only' -- decoder
folder quantised 'config["quantization_config"] = {"load_in_8bit": True}'
refuse 3 'quantization_config: quantised weights are not supported' -- quantised
folder own 'config["auto_map"] = {"AutoModel": "modeling.Own"}'
refuse 3 'auto_map: the folder computes by code of its own' -- own
folder unknown 'config["scale_embedding"] = True'
refuse 3 'scale_embedding: skycc does not know this member' 'hint: remove it' -- unknown
folder pruned 'config["pruned_heads"] = {"0": [1]}'
refuse 3 'pruned_heads: pruned heads are not supported' -- pruned
folder long && head -c 5000000 /dev/zero >long/config.json
refuse 1 'config.json: error: is longer than' -- long

# Tensors
folder wide 'config["intermediate_size"] = 32'
refuse 1 "wide: error: tensor 'bert.encoder.layer.0.intermediate.dense.weight': has the shape \[24,16\], .* \[32,16\]" \
    "tensor 'bert.encoder.layer.1.output.dense.weight'" 'hint:' -- wide
folder deep 'config["num_hidden_layers"] = 10000'
refuse 1 "tensor 'bert.encoder.layer.2.attention.self.query.weight': is missing" -- deep
folder shallow 'config["num_hidden_layers"] = 1'
expect 0 'shallow: warning: has 16 tensors of the encoder that are not used: bert.encoder.layer.1' 'hint: ' -- \
    "$skycc" import shallow -o -
folder labels 'config.update(id2label={str(i): str(i) for i in range(5)})'
refuse 1 "tensor 'classifier.weight': has the shape \[2,16\], .*\[5,16\]" 'hint: .*--head' -- labels
expect 0 'new: classifier.weight, classifier.bias' 'not used: ' -- "$skycc" import labels -o - --head seqcls:5

# Several files
shards() { # NAME PYTHON: a folder with an index, but for what the statements make of it.
    folder "$1" && mv "$1/model.safetensors" "$1/a.safetensors" && /usr/bin/python3 - "$1" "$2" <<'END' || die "$2"
import json, sys
content = open(sys.argv[1] + "/a.safetensors", "rb").read()
header = json.loads(content[8:8 + int.from_bytes(content[:8], "little")])
names = [name for name in header if name != "__metadata__"]
index = {"metadata": {}, "weight_map": {name: "a.safetensors" for name in names}}
exec(sys.argv[2])
json.dump(index, open(sys.argv[1] + "/model.safetensors.index.json", "w"))
END
}

folder whole && "$skycc" import whole -q -o single.onnx && rm -r whole || fail "a folder"
shards whole '' && "$skycc" import whole -q -o model.onnx || fail "an index"
cmp model.onnx single.onnx || fail "tensors that an index names are others"
rm model.onnx single.onnx

# Elements of 16 bits, each kind in a file of its own, compute as the float32 of the same value.
/usr/bin/python3 - "$bert/model.safetensors" "$common" <<'END' || die "halves"
import json, sys
import numpy as np
sys.path.insert(0, sys.argv[2])
from safetensors_files import read, write

def brain(array):  # the upper half of a float32
    return (np.ascontiguousarray(array).view(np.uint32) >> 16).astype(np.uint16)

tensors = sorted(read(sys.argv[1]).items())
half = {name: array.astype(np.float16) for name, array in tensors[::2]}
upper = {name: brain(array) for name, array in tensors[1::2]}
write("half.safetensors", half)
write("upper.safetensors", {name: array.view(np.int16) for name, array in upper.items()})
content = open("upper.safetensors", "rb").read().replace(b'"I16"', b'"BF16"', 1 << 20)
size = int.from_bytes(content[:8], "little") + len(upper)
content = size.to_bytes(8, "little") + content[8:]
open("upper.safetensors", "wb").write(content)
full = {name: array.astype(np.float32) for name, array in half.items()}
full.update({name: (array.astype(np.uint32) << 16).view(np.float32).reshape(array.shape)
             for name, array in upper.items()})
write("full.safetensors", full)
names = {**{name: "half.safetensors" for name in half}, **{name: "upper.safetensors" for name in upper}}
json.dump({"weight_map": names}, open("index.json", "w"))
END
folder widths && mv full.safetensors widths/model.safetensors
"$skycc" import widths -q -o full.onnx && rm widths/model.safetensors || fail "rounded elements"
mv half.safetensors upper.safetensors widths && mv index.json widths/model.safetensors.index.json
"$skycc" import widths -q -o halves.onnx || fail "elements of 16 bits"
for kind in full halves; do
    "$skycc" run $kind.onnx --inputs "$bert/reference.safetensors" --interpret -o $kind.out || fail "run $kind"
done
cmp full.out halves.out || fail "elements of 16 bits are others"
rm full.onnx halves.onnx
shards outside 'index["weight_map"][names[0]] = "../bert/model.safetensors"'
refuse 1 "index.json: error: weight_map\['.*'\]: is outside the folder" -- outside
shards absolute 'index["weight_map"][names[0]] = "/etc/passwd"'
refuse 1 'is outside the folder' -- absolute
shards parent 'index["weight_map"][names[0]] = ".."'
refuse 1 'is not a file name' -- parent
shards lacking 'index["weight_map"][names[0]] = "b.safetensors"'
refuse 1 "is in 'b.safetensors', which is missing in the folder" 'hint: copy or download that file' -- lacking
shards elsewhere 'index["weight_map"]["nothing"] = "a.safetensors"'
refuse 1 "weight_map\['nothing'\]: is not in 'a.safetensors'" -- elsewhere
shards number 'index["weight_map"][names[0]] = 7'
refuse 1 'must be a file name' -- number
shards mapless 'del index["weight_map"]'
refuse 1 'weight_map: is missing' -- mapless
shards linked '' && mv linked/a.safetensors . && ln -s ../a.safetensors linked/a.safetensors
refuse 1 'a.safetensors: error: is a symbolic link out of the folder' -- linked

# Options
refuse 2 'seqcls:N' -- "$bert" --head seqcls
refuse 2 'seqcls:N' -- "$bert" --head seqcls:0
refuse 2 'seqcls:N' -- "$bert" --head tokcls:3x
refuse 2 'seqcls:N' -- "$bert" --head embedding:max
exit $failures
