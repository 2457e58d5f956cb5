# Everything comes from the system's packages (scripts/bootstrap-debian.sh); static where Debian ships an archive, so
# that the binary runs on a machine that has none of them.
set(CMAKE_FIND_LIBRARY_SUFFIXES .a .so)
set(Boost_USE_STATIC_LIBS ON)
set(OPENSSL_USE_STATIC_LIBS ON)
find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED COMPONENTS json)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(fmt 9 REQUIRED)  # headers; src/base/fmt.cpp is its compiled half
find_package(spdlog REQUIRED)  # headers, in src/base/log.cpp only
find_package(tl-expected REQUIRED)
find_package(CLI11 REQUIRED)

find_library(LILY_UTF8PROC utf8proc REQUIRED)
add_library(lily_utf8proc INTERFACE)
target_link_libraries(lily_utf8proc INTERFACE ${LILY_UTF8PROC})
target_compile_definitions(lily_utf8proc INTERFACE UTF8PROC_STATIC)

find_library(LILY_ZSTD zstd REQUIRED)
add_library(lily_zstd INTERFACE)
target_link_libraries(lily_zstd INTERFACE ${LILY_ZSTD})

find_library(LILY_XXHASH xxhash REQUIRED)
add_library(lily_xxhash INTERFACE)
target_link_libraries(lily_xxhash INTERFACE ${LILY_XXHASH})

add_library(lily_beast INTERFACE)
target_link_libraries(lily_beast INTERFACE Boost::headers Threads::Threads)

find_library(LILY_EDIT edit REQUIRED)
find_library(LILY_TINFO tinfo REQUIRED)
find_library(LILY_BSD bsd REQUIRED)
find_library(LILY_MD md REQUIRED)
add_library(lily_edit INTERFACE)
target_link_libraries(lily_edit INTERFACE ${LILY_EDIT} ${LILY_TINFO} ${LILY_BSD} ${LILY_MD})
