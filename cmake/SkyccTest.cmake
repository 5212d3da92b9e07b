# Tests as tests/README.md describes them.

set(SKYCC_TEST_CACHE ${CMAKE_BINARY_DIR}/kernel-cache
  CACHE PATH "Where tests keep compiled kernels; builds may share it")

# What every test finds in its environment. Threads that wait sleep, since the tests run side by side on few
# processors; compiled kernels, PoCL's too, are kept in folders of their own, each compiled once, and never where the
# user's are. Ranks that mpiexec starts directly exchange messages as `train` lets them: with MPICH's own shared memory
# they spin until all have started. MPI does not look for PCI devices, which takes a fifth of its start. What a test
# frees glibc keeps, up to 16 MiB: thousands of small problems in a process otherwise spend most of their time on page
# faults.
set(SKYCC_TEST_ENVIRONMENT
  OMP_WAIT_POLICY=passive MALLOC_TOP_PAD_=16777216 SKYCC_CACHE=${SKYCC_TEST_CACHE} SKYCC_CACHE_SIZE=1GiB
  POCL_CACHE_DIR=${SKYCC_TEST_CACHE}-pocl MPIR_CVAR_NOLOCAL=1 HWLOC_COMPONENTS=-pci,-linuxio)

# The last argument of tests that leave out a part in the sanitized run.
set(SKYCC_LESS)
if(SKYCC_SANITIZE)
  set(SKYCC_LESS less)
endif()

# What all tests need built; not the measurements of bench/.
add_custom_target(for_all)

# skycc_add_test(NAME COMMAND WORD... [TARGETS TARGET...] [SLOW] [COST SECONDS] [LABELS LABEL...] [MANY_PROCESSES])
#
# A test that runs the command. `./test NAME` builds TARGETS first: they are the dependencies of the target for_NAME.
# Its labels are its folder's, and LABELS. SLOW: `./test --quick` leaves it out. COST: how long it takes, roughly (1);
# those that take longest start first. MANY_PROCESSES: what leaks is not looked for at the end of each, which would take
# a fifth of the test's time; other tests look for it in the same programs.
function(skycc_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 test "SLOW;MANY_PROCESSES" "COST" "COMMAND;TARGETS;LABELS")
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  if(test_SLOW)
    list(APPEND test_LABELS slow)
  endif()
  if(NOT test_COST)
    set(test_COST 1)
  endif()
  set(environment ${SKYCC_TEST_ENVIRONMENT})
  # Freed memory is used again after 8 MiB of it: 256 MiB of fresh pages take a quarter of a small compilation. The
  # search for leaks does not look at thread-local memory of libraries that were loaded late: it guesses where that
  # lies, and crashed. Five callers of an allocation tell where it is made; 30 take longer to walk and to keep.
  set(sanitizer quarantine_size_mb=8:intercept_tls_get_addr=0:malloc_context_size=5)
  if(test_MANY_PROCESSES)
    string(APPEND sanitizer :detect_leaks=0)
  endif()
  list(APPEND environment ASAN_OPTIONS=${sanitizer})
  add_test(NAME ${name} COMMAND ${test_COMMAND})
  set_tests_properties(${name} PROPERTIES
    LABELS "${folder};${test_LABELS}" COST ${test_COST} TIMEOUT 900 ENVIRONMENT "${environment}")
  add_custom_target(for_${name})
  if(test_TARGETS)
    add_dependencies(for_${name} ${test_TARGETS})
  endif()
  add_dependencies(for_all for_${name})
endfunction()

# skycc_test(NAME LIBRARIES... [PROGRAM] [ARGUMENTS WORD...], and what skycc_add_test takes): test_NAME.c of this
# folder, with cmocka, as a test of that name. Data is found under SKY_TEST_DATA. PROGRAM: it runs the compiler,
# SKYCC_PROGRAM.
function(skycc_test name)
  cmake_parse_arguments(PARSE_ARGV 1 test "PROGRAM;SLOW;MANY_PROCESSES" "COST" "ARGUMENTS;LABELS")
  add_executable(test_${name} test_${name}.c)
  target_link_libraries(test_${name} PRIVATE ${test_UNPARSED_ARGUMENTS} tests_common)
  target_compile_definitions(test_${name} PRIVATE SKY_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data")
  set(targets test_${name})
  if(test_PROGRAM)
    target_compile_definitions(test_${name} PRIVATE SKYCC_PROGRAM="$<TARGET_FILE:skycc>")
    list(APPEND targets skycc)
  endif()
  set(flags)
  foreach(flag SLOW MANY_PROCESSES)
    if(test_${flag})
      list(APPEND flags ${flag})
    endif()
  endforeach()
  skycc_add_test(${name} ${flags} COST "${test_COST}" LABELS ${test_LABELS} TARGETS ${targets}
    COMMAND test_${name} ${test_ARGUMENTS})
endfunction()
