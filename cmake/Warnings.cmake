add_library(lily_flags INTERFACE)
target_compile_options(lily_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wundef
                                            $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>  # false alarms of g++ 12 on std::string
                                            # members left out on purpose have defaults; clang-19 minds them, and g++ 12's own <algorithm>
                                            "$<$<CXX_COMPILER_ID:Clang>:-Wno-missing-designated-field-initializers;-Wno-deprecated-declarations>"
                                            -fno-math-errno -ffp-contract=off -fvisibility=hidden)
target_include_directories(lily_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
if(LILY_SANITIZE)
  target_compile_options(lily_flags INTERFACE -fsanitize=${LILY_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g)
  target_link_options(lily_flags INTERFACE -fsanitize=${LILY_SANITIZE})
else()
  target_link_options(lily_flags INTERFACE -static-libstdc++ -static-libgcc)
endif()
if(LILY_FUZZ)  # every library tells the fuzzers which branches an input took
  target_compile_options(lily_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
find_program(LILY_CCACHE ccache)
if(LILY_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${LILY_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${LILY_CCACHE})
endif()
