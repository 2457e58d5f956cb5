// Checks of the program's own invariants. Never reachable from user input.
#pragma once

#include <cstdio>
#include <cstdlib>

#define LILY_CHECK(condition)                                                            \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (0)

#ifdef NDEBUG
#define LILY_DCHECK(condition) ((void)0)
#else
#define LILY_DCHECK(condition) LILY_CHECK(condition)
#endif
