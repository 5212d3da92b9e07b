# cmake -D OUTPUT=HEADER -D FILES=A;B;... -P hash-sources.cmake: a header with the hash of these files' bytes.
set(hashes "")
foreach(file IN LISTS FILES)
  file(SHA256 ${file} hash)
  string(APPEND hashes ${hash})
endforeach()
string(SHA256 hash "${hashes}")
file(WRITE ${OUTPUT} "#define KERNEL_SOURCES_HASH \"${hash}\"\n")
