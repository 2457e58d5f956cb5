#include "base/version.h"

#ifndef LILY_COMMIT
#define LILY_COMMIT "unknown"
#endif

namespace lily {

std::string_view version() {
  return "0.1.0";
}
std::string_view commit() {
  return LILY_COMMIT;
}

}  // namespace lily
