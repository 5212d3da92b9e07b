# Cross-builds the runtime library for 64-bit ARM with Debian's gcc-aarch64-linux-gnu:
#   cmake -G Ninja -S . -B build-aarch64 -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake
#   cmake --build build-aarch64
# makes build-aarch64/lib/skycc/libskyrt.a, which a target of the cluster file names as its runtime.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
