# The commit and build type that `lily --version` and bench results name. Asked again whenever HEAD moves.
find_package(Git QUIET)
set(LILY_COMMIT "unknown")
if(Git_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} describe --always --exclude=* --dirty=+ WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
                  OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --path-format=absolute --git-path logs/HEAD
                  WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
                  OUTPUT_VARIABLE head_log OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(status EQUAL 0)
    set(LILY_COMMIT ${described})
    if(EXISTS "${head_log}")
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${head_log})
    endif()
  endif()
endif()
set_source_files_properties(src/base/version.cpp PROPERTIES COMPILE_DEFINITIONS LILY_COMMIT="${LILY_COMMIT}")
set_source_files_properties(src/apps/version.cpp PROPERTIES COMPILE_DEFINITIONS LILY_BUILD_TYPE="${CMAKE_BUILD_TYPE}")
