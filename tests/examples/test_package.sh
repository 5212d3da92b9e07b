#!/bin/bash
# What `cmake --install` installs builds examples/pipeline, also after it was moved, and only what changed again.
#
#   tests/examples/test_package.sh BUILD_DIRECTORY SOURCE_DIRECTORY
set -eu
# shellcheck source=tests/common/test.sh
source "$(dirname "$0")/../common/test.sh"
build=$1
source=$2
enter_scratch_folder
export XDG_CACHE_HOME=$scratch/cache

cmake --install "$build" --prefix "$scratch/installed" >install.log
for file in bin/skycc lib/skycc/code_generator.so lib/skycc/libskyrt.a share/man/man1/skycc.1 \
    share/bash-completion/completions/skycc share/zsh/vendor-completions/_skycc \
    share/fish/vendor_completions.d/skycc.fish; do
    [ -s "installed/$file" ] || die "$file is not installed"
done
if grep -rl -e "$build" -e "$source" -e "$scratch" installed; then die \
    "a path of where it was built or installed is in these"; fi
mkdir moved
mv installed moved/prefix

# Without the code generator, what generates no code works, and what does names it.
mv moved/prefix/lib/skycc/code_generator.so .
model=$source/tests/data/bert/bert-nano-seqcls-opset17-dyn.onnx
echo 'devices: [{name: a}]' >cluster.yaml
moved/prefix/bin/skycc check "$model" >check.log 2>&1 || die "check needs no code generator: $(cat check.log)"
status=0
moved/prefix/bin/skycc compile "$model" -d cluster.yaml --dim seq=8 -o none >compile.log 2>&1 || status=$?
[ $status = 5 ] || die "without its code generator compile ends with $status: $(cat compile.log)"
grep -q 'the code generator cannot be loaded: .*lib/skycc/code_generator.so' compile.log || die "$(cat compile.log)"
grep -q 'hint: install bin/skycc' compile.log || die "no hint: $(cat compile.log)"
status=0
moved/prefix/bin/skycc run "${model/seqcls/mlm}" --inputs "$source/tests/data/bert/mlm.ref.safetensors" -o none \
    >run.log 2>&1 || status=$?
[ $status = 5 ] || die "without its code generator run ends with $status: $(cat run.log)"

# One of other sources is not called: its structures may be others.
python3 - code_generator.so moved/prefix/lib/skycc/code_generator.so "$build/driver/code_generator_sources.h" <<'END'
import pathlib
import sys

library, other, header = map(pathlib.Path, sys.argv[1:])
build = header.read_text().split('"')[1].encode()
library_bytes = library.read_bytes()
assert build in library_bytes, "the library does not say of which sources it is"
other.write_bytes(library_bytes.replace(build, build[::-1]))
END
status=0
moved/prefix/bin/skycc compile "$model" -d cluster.yaml --dim seq=8 -o none >compile.log 2>&1 || status=$?
[ $status = 5 ] || die "with the code generator of another build compile ends with $status: $(cat compile.log)"
grep -q 'code_generator.so is of another build' compile.log || die "$(cat compile.log)"
mv code_generator.so moved/prefix/lib/skycc/

cp -r "$source/examples/pipeline" example
cmake -G Ninja -S example -B work -DCMAKE_PREFIX_PATH="$scratch/moved/prefix" >configure.log
cmake --build work >build.log
ctest --test-dir work --output-on-failure >test.log || die "the example's tests: $(cat test.log)"

# Again only for what changed: nothing, then the cluster file.
cmake --build work | grep -q 'no work to do' || die "it is built again without a change"
touch example/devices.yaml
cmake --build work | grep -q Compiling || die "it is not built again after a change"
sed -i 's/FAIL_ABOVE 2/FAIL_ABOVE 1e-9/' example/CMakeLists.txt
if cmake --build work >build.log; then die "a plan slower than FAIL_ABOVE is taken"; fi
grep -q 'fail-above' build.log || die "FAIL_ABOVE is not said to be why: $(cat build.log)"

export PKG_CONFIG_PATH=$scratch/moved/prefix/lib/pkgconfig
"$(pkg-config --variable=compiler skycc)" --version | grep -qF "$(pkg-config --modversion skycc)" || die "pkg-config"
[ -e "$(pkg-config --variable=runtime skycc)" ] || die "pkg-config does not find the runtime library"
finish "installed, moved, and used by examples/pipeline"
