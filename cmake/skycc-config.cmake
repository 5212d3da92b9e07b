# find_package(skycc) gives skycc_compile() and the executable skycc::skycc. A prefix that CMake does not search is
# named with CMAKE_PREFIX_PATH. A build folder of skycc mirrors an installation, so that works uninstalled too:
#   cmake -DCMAKE_PREFIX_PATH=/path/to/skycc/build ...
cmake_policy(PUSH)
cmake_policy(VERSION 3.20...3.25)

if(NOT TARGET skycc::skycc)
  get_filename_component(SKYCC_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
  add_executable(skycc::skycc IMPORTED)
  set_target_properties(skycc::skycc PROPERTIES
    IMPORTED_LOCATION "${SKYCC_PREFIX}/bin/skycc"
    SKYCC_LIBRARIES "${SKYCC_PREFIX}/lib/skycc/libskyrt.a;${SKYCC_PREFIX}/lib/skycc/code_generator.so")
  unset(SKYCC_PREFIX)
endif()

# skycc_compile(TARGET name MODEL file.onnx CLUSTER file.yaml [PROFILE file.json] [OUTPUT folder] [FAIL_ABOVE seconds]
#               [OPTIONS ...] [ALL])
#
# The target `name` makes the folder OUTPUT (by default `name` in the current build folder): stage programs, launch
# files, plan.json, costs.json, report.html. It is made again when the model, the files of its weights, the cluster
# file, the profile or skycc itself changed. If the plan's step takes longer than FAIL_ABOVE seconds, the build fails.
# OPTIONS are those of `skycc compile`; ALL builds the target by default. Relative names of files are looked for in
# the current source folder, then taken for files that the build makes in the current build folder. The target's
# property SKYCC_OUTPUT is the folder.
function(skycc_compile)
  cmake_parse_arguments(PARSE_ARGV 0 arg "ALL" "TARGET;MODEL;CLUSTER;PROFILE;OUTPUT;FAIL_ABOVE" "OPTIONS")
  if(NOT arg_TARGET OR NOT arg_MODEL OR NOT arg_CLUSTER OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "skycc_compile: TARGET, MODEL and CLUSTER are needed; unknown: '${arg_UNPARSED_ARGUMENTS}'")
  endif()
  foreach(file MODEL CLUSTER PROFILE)
    if(arg_${file} AND EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${arg_${file}}")
      set(arg_${file} "${CMAKE_CURRENT_SOURCE_DIR}/${arg_${file}}")
    elseif(arg_${file})
      get_filename_component(arg_${file} "${arg_${file}}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_BINARY_DIR}")
    endif()
  endforeach()
  if(NOT arg_OUTPUT)
    set(arg_OUTPUT ${arg_TARGET})
  endif()
  get_filename_component(folder "${arg_OUTPUT}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_BINARY_DIR}")
  set(options ${arg_OPTIONS})
  if(arg_PROFILE)
    list(APPEND options --profile "${arg_PROFILE}")
  endif()
  if(DEFINED arg_FAIL_ABOVE)
    list(APPEND options --fail-above ${arg_FAIL_ABOVE})
  endif()
  add_custom_command(
    OUTPUT "${folder}/plan.json"
    BYPRODUCTS "${folder}/costs.json" "${folder}/report.html"
    COMMAND skycc::skycc compile "${arg_MODEL}" -d "${arg_CLUSTER}" -o "${folder}" --depfile "${folder}.d" --quiet
            ${options}
    DEPENDS "${arg_MODEL}" "${arg_CLUSTER}" ${arg_PROFILE} skycc::skycc
            "$<TARGET_PROPERTY:skycc::skycc,SKYCC_LIBRARIES>"
    DEPFILE "${folder}.d"
    COMMENT "Compiling ${arg_MODEL} for ${arg_CLUSTER}"
    VERBATIM)
  set(all)
  if(arg_ALL)
    set(all ALL)
  endif()
  add_custom_target(${arg_TARGET} ${all} DEPENDS "${folder}/plan.json")
  set_target_properties(${arg_TARGET} PROPERTIES SKYCC_OUTPUT "${folder}")
endfunction()
cmake_policy(POP)
