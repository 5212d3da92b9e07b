# cmake -D OUTPUT=HEADER -D NAME=MACRO -D FILES=A;B;... -P hash-sources.cmake: a header whose macro is the hash of these
# files' bytes.
set(hashes "")
foreach(file IN LISTS FILES)
  file(SHA256 ${file} hash)
  string(APPEND hashes ${hash})
endforeach()
string(SHA256 hash "${hashes}")
file(WRITE ${OUTPUT} "#define ${NAME} \"${hash}\"\n")
