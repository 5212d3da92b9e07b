# What is installed, and a Debian package of it. Nothing that is installed knows its prefix: skycc finds its runtime
# library next to itself, and the CMake and pkg-config files find skycc next to themselves. So an installation can be
# moved, and the build folder, which has the same shape, can be used as one.
include(CMakePackageConfigHelpers)

file(COPY cmake/skycc-config.cmake DESTINATION ${CMAKE_BINARY_DIR}/lib/cmake/skycc)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/lib/cmake/skycc/skycc-config-version.cmake
  COMPATIBILITY SameMinorVersion)
configure_file(cmake/skycc.pc.in ${CMAKE_BINARY_DIR}/lib/pkgconfig/skycc.pc @ONLY)

install(TARGETS skycc)
install(TARGETS skyrt ARCHIVE DESTINATION lib/skycc)
if(TARGET code_generator)
  install(TARGETS code_generator LIBRARY DESTINATION lib/skycc)
endif()
install(TARGETS gateway member RUNTIME DESTINATION lib/skycc)
install(DIRECTORY ${CMAKE_BINARY_DIR}/lib/cmake ${CMAKE_BINARY_DIR}/lib/pkgconfig DESTINATION lib)
install(FILES LICENSE DESTINATION share/doc/skycc)
install(FILES NOTICE DESTINATION share/doc/skycc RENAME copyright)

# Debian's package: `cpack --config build/CPackConfig.cmake`. What skycc itself is linked with is read from it; the list
# adds what its programs are linked with and started by.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME skycc)
set(CPACK_PACKAGE_CONTACT "the skycc authors <skycc@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "compiler from BERT-family ONNX graphs to pipeline-training programs")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "gcc, libc6-dev, libgomp1, libjansson-dev, libmpich-dev, libzmq3-dev, mpich")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "bash-completion, man-db, openssh-client")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "cmake, pkg-config, lld-19")
include(CPack)
