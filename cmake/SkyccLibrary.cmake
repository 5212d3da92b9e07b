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
endfunction()
