# skycc_library(LIBRARIES...): the sources of this folder as a static library. It is called as the folder is, with _
# for /: codegen/stage is codegen_stage. LIBRARIES are what its headers and sources need. gateway_main.c and the like
# are not in it: these are programs of their own.
function(skycc_library)
  file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(REPLACE "/" "_" name ${name})
  file(GLOB sources CONFIGURE_DEPENDS *.c)
  file(GLOB programs CONFIGURE_DEPENDS gateway_main.c member_main.c)
  list(REMOVE_ITEM sources ${programs})
  add_library(${name} STATIC ${sources})
  target_link_libraries(${name} PUBLIC ${ARGN})
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  if(SKYCC_SANITIZE AND folder MATCHES "${SKYCC_UNOPTIMISED}")
    target_compile_options(${name} PRIVATE -O0)
  endif()
endfunction()

# skycc_library_threads(LIBRARY): its loops may use several threads, which change no result; a compiler without OpenMP
# only takes longer. Only GCC's library may be used: clang would add a second one to the process, and thread numbers
# come out wrong where the two meet.
function(skycc_library_threads name)
  find_package(OpenMP COMPONENTS C)
  if(OpenMP_C_FOUND AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    target_link_libraries(${name} PRIVATE OpenMP::OpenMP_C)
  endif()
endfunction()

# skycc_hash_sources(MACRO HEADER FOLDER...): HEADER, written when it is built, defines MACRO as the hash of the .c and
# .h files of these folders.
function(skycc_hash_sources macro header)
  list(TRANSFORM ARGN PREPEND ${CMAKE_SOURCE_DIR}/ OUTPUT_VARIABLE patterns)
  list(TRANSFORM patterns APPEND /*.[ch])
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  set(script ${CMAKE_SOURCE_DIR}/cmake/hash-sources.cmake)
  add_custom_command(OUTPUT ${header} VERBATIM DEPENDS ${sources} ${script}
    COMMAND ${CMAKE_COMMAND} -D OUTPUT=${header} -D NAME=${macro} "-DFILES=${sources}" -P ${script})
endfunction()
