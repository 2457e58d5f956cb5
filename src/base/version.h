// Version and commit of this build.
#pragma once

#include <string_view>

namespace lily {

std::string_view version();
std::string_view commit();  // short hash, "+" appended if the tree had changes; "unknown" outside a repository

}  // namespace lily
