// The text that `lily eval` judges when it is given none.
#pragma once

#include <string_view>

namespace lily::apps {

// Plain prose, figures, code and an exchange in the chat format, about 1,500 tokens of the large vocabulary.
extern const std::string_view kEvalText;

}  // namespace lily::apps
