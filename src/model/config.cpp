// The nearest shape is the one that agrees in most keys; the first key that does not agree with it is the refusal.
#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>

#include "base/quote.h"
#include "model/foreign.h"
#include "model/layout.h"
#include "model/strict_json.h"

namespace lily {
namespace {

// One key of the text configuration whose value the shape dictates.
struct Expectation {
  std::string_view key;
  double value;
  bool optional = false;  // absent means the expected value
};

std::vector<Expectation> expectations(const Shape& s) {
  return {{"hidden_size", static_cast<double>(s.hidden)},
          {"num_hidden_layers", static_cast<double>(s.n_layers)},
          {"full_attention_interval", static_cast<double>(s.attention_interval), true},
          {"num_attention_heads", static_cast<double>(s.n_q_heads)},
          {"num_key_value_heads", static_cast<double>(s.n_kv_heads)},
          {"head_dim", static_cast<double>(s.head_dim)},
          {"linear_num_key_heads", static_cast<double>(s.gdn_k_heads)},
          {"linear_num_value_heads", static_cast<double>(s.gdn_v_heads)},
          {"linear_key_head_dim", static_cast<double>(s.gdn_head_dim)},
          {"linear_value_head_dim", static_cast<double>(s.gdn_head_dim)},
          {"linear_conv_kernel_dim", static_cast<double>(s.conv_width)},
          {"num_experts", static_cast<double>(s.n_experts)},
          {"num_experts_per_tok", static_cast<double>(s.n_active)},
          {"moe_intermediate_size", static_cast<double>(s.expert_dim)},
          {"shared_expert_intermediate_size", static_cast<double>(s.shared_dim)},
          {"vocab_size", static_cast<double>(s.vocab)},
          {"rms_norm_eps", 1e-6, true}};
}

std::optional<double> number(const json::Value* value) {
  if (value == nullptr) return std::nullopt;
  if (value->is_int64()) return static_cast<double>(value->get_int64());
  if (value->is_uint64()) return static_cast<double>(value->get_uint64());
  if (value->is_double()) return value->get_double();
  return std::nullopt;
}

std::string shown(const json::Value* value) {
  return value == nullptr ? std::string("nothing") : quote(json::dump(*value), 64);
}

// Numbers of a config are written by several programs; 1e-06 and 1e-6 are one value.
bool same(double a, double b) {
  return std::fabs(a - b) <= 1e-9 * std::fabs(b);
}

bool agrees(const json::Object& text, const Expectation& expected) {
  const json::Value* value = text.if_contains(expected.key);
  if (value == nullptr) return expected.optional;
  const std::optional<double> found = number(value);
  return found && same(*found, expected.value);
}

const Shape& nearest_shape(const json::Object& text) {
  const auto score = [&](const Shape* shape) {
    return std::ranges::count_if(expectations(*shape), [&](const Expectation& e) { return agrees(text, e); });
  };
  return **std::ranges::max_element(kShapes, std::less<>(), score);
}

tl::unexpected<Error> unexpected_value(const std::string& label, std::string_view key, const std::string& expected,
                                       const json::Value* found) {
  return fail(ErrorCode::Unsupported, "{}: {}: expected {}, found {}; {}", label, key, expected, shown(found), kWanted);
}

Result<void> check_sizes(const json::Object& text, const Shape& shape, const std::string& label) {
  for (const Expectation& expected : expectations(shape))
    if (!agrees(text, expected))
      return unexpected_value(label, expected.key, fmt::format("{} ({})", expected.value, shape.name),
                              text.if_contains(expected.key));
  return {};
}

// Switches of the architecture that this program has built in. Absent means the built-in value.
Result<void> check_switches(const json::Object& outer, const json::Object& text, const std::string& label) {
  const std::pair<std::string_view, json::Value> kSwitches[] = {{"tie_word_embeddings", false},
                                                                {"attention_bias", false},
                                                                {"attn_output_gate", true},
                                                                {"norm_topk_prob", true},
                                                                {"hidden_act", "silu"}};
  for (const auto& [key, expected] : kSwitches)
    for (const json::Object* object : {&text, &outer})
      if (const json::Value* found = object->if_contains(key); found != nullptr && *found != expected)
        return unexpected_value(label, key, json::dump(expected), found);
  if (const json::Value* list = text.if_contains("mlp_only_layers"))
    if (!list->is_array() || !list->get_array().empty()) return unexpected_value(label, "mlp_only_layers", "[]", list);
  if (const json::Value* scaling = text.if_contains("rope_scaling"); scaling != nullptr && !scaling->is_null())
    return unexpected_value(label, "rope_scaling", "null", scaling);
  return {};
}

// rope_parameters, or the same keys at the level of the text configuration.
Result<void> check_rope(const json::Object& text, const Shape& shape, const std::string& label) {
  const json::Value* nested = text.if_contains("rope_parameters");
  if (nested != nullptr && !nested->is_object() && !nested->is_null())
    return unexpected_value(label, "rope_parameters", "an object", nested);
  for (const json::Object* rope : {nested != nullptr ? nested->if_object() : nullptr, &text}) {
    if (rope == nullptr) continue;
    if (const json::Value* theta = rope->if_contains("rope_theta"))
      if (const auto found = number(theta); !found || !same(*found, kRopeTheta))
        return unexpected_value(label, "rope_theta", "10000000", theta);
    const double factor = static_cast<double>(shape.rotary_dim) / shape.head_dim;
    if (const json::Value* partial = rope->if_contains("partial_rotary_factor"))
      if (const auto found = number(partial); !found || !same(*found, factor))
        return unexpected_value(label, "partial_rotary_factor", fmt::format("{}", factor), partial);
    if (const json::Value* type = rope->if_contains("rope_type"))
      if (*type != "default") return unexpected_value(label, "rope_type", "\"default\"", type);
  }
  return {};
}

Result<void> check_layer_types(const json::Object& text, const Shape& shape, const std::string& label) {
  const json::Value* types = text.if_contains("layer_types");
  if (types == nullptr) return {};
  if (!types->is_array() || types->get_array().size() != static_cast<std::size_t>(shape.n_layers))
    return fail(ErrorCode::Corrupt, "{}: layer_types: expected a list of {} names", label, shape.n_layers);
  for (int i = 0; i < shape.n_layers; ++i) {
    const json::Value& type = types->get_array()[static_cast<std::size_t>(i)];
    const std::string_view expected = shape.is_attention(i) ? "full_attention" : "linear_attention";
    if (!type.is_string() || std::string_view(type.get_string()) != expected)
      return unexpected_value(label, fmt::format("layer_types[{}]", i), quote(expected), &type);
  }
  return {};
}

Result<std::int64_t> parse_max_positions(const json::Object& text, const Shape& shape, const std::string& label) {
  const json::Value* value = text.if_contains("max_position_embeddings");
  if (value == nullptr) return shape.max_positions;
  if (!value->is_int64() || value->get_int64() < 1 || value->get_int64() > shape.max_positions)
    return unexpected_value(label, "max_position_embeddings", fmt::format("1 to {}", shape.max_positions), value);
  return value->get_int64();
}

Result<std::vector<TokenId>> token_ids(const json::Value* value, int vocab, const std::string& where) {
  std::vector<TokenId> ids;
  if (value == nullptr || value->is_null()) return ids;
  const auto add = [&](const json::Value& id) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= vocab) return false;
    ids.push_back(static_cast<TokenId>(id.get_int64()));
    return true;
  };
  const json::Array* list = value->if_array();
  const bool good = list != nullptr ? std::ranges::all_of(*list, add) : add(*value);
  if (!good)
    return fail(ErrorCode::Corrupt, "{}: eos_token_id: expected ids from 0 to {}, found {}", where, vocab - 1,
                shown(value));
  return ids;
}

// The per-module entries of the quantisation block, for modules of the text part.
Result<void> parse_overrides(const json::Object& block, const std::string& label, ModelConfig& config) {
  for (const auto& [key, value] : block) {
    const std::string_view name(key);
    if (name.find('.') == std::string_view::npos && name != "lm_head") continue;  // group_size, bits, mode, ...
    if (is_vision_tensor(name) || is_mtp_tensor(name)) continue;
    const json::Object* fields = value.if_object();
    if (fields == nullptr) {
      if (value.is_bool() && value.get_bool()) continue;  // quantised with the defaults
      return fail(ErrorCode::Unsupported, "{}: module {} is not quantised; {}", label, quote(name), kWanted);
    }
    const json::Value* bits = fields->if_contains("bits");
    const json::Value* group = fields->if_contains("group_size");
    if (group != nullptr && *group != kGroupSize)
      return unexpected_value(label, fmt::format("group_size of {}", quote(name)), std::to_string(kGroupSize), group);
    if (bits == nullptr) continue;
    if (*bits != 4 && *bits != 8)
      return unexpected_value(label, fmt::format("bits of {}", quote(name)), "4 or 8", bits);
    config.bits.insert_or_assign(std::string(without_prefix(name)), static_cast<int>(bits->get_int64()));
  }
  return {};
}

Result<void> parse_quantization(const json::Object& outer, const std::string& label, ModelConfig& config) {
  const json::Value* first = outer.if_contains("quantization");
  const json::Value* second = outer.if_contains("quantization_config");
  if (first != nullptr && second != nullptr && *first != *second)
    return fail(ErrorCode::Corrupt, "{}: quantization and quantization_config differ", label);
  return parse_overrides((first != nullptr ? first : second)->get_object(), label, config);
}

}  // namespace

int ModelConfig::bits_of(std::string_view module) const {
  const auto entry = bits.find(module);
  return entry == bits.end() ? 4 : entry->second;
}

Result<ModelConfig> parse_config(std::string_view contents, const std::string& label) try {
  LILY_TRY(const json::Object outer, parse_strict_object(contents, label));
  LILY_TRY_VOID(refuse_foreign_config(outer, label));
  const json::Value* nested = outer.if_contains("text_config");
  if (nested != nullptr && !nested->is_object()) return unexpected_value(label, "text_config", "an object", nested);
  const json::Object& text = nested != nullptr ? nested->get_object() : outer;

  ModelConfig config;
  config.shape = &nearest_shape(text);
  LILY_TRY_VOID(check_sizes(text, *config.shape, label));
  LILY_TRY_VOID(check_switches(outer, text, label));
  LILY_TRY_VOID(check_rope(text, *config.shape, label));
  LILY_TRY_VOID(check_layer_types(text, *config.shape, label));
  LILY_TRY(config.max_positions, parse_max_positions(text, *config.shape, label));
  LILY_TRY_VOID(parse_quantization(outer, label, config));
  LILY_TRY(config.eos_ids, token_ids(outer.if_contains("eos_token_id"), config.shape->vocab, label));
  if (config.eos_ids.empty()) {
    LILY_TRY(config.eos_ids, token_ids(text.if_contains("eos_token_id"), config.shape->vocab, label));
  }
  if (const auto layers = number(text.if_contains("mtp_num_hidden_layers"))) config.mtp_layers = *layers > 0;
  return config;
} catch (const std::exception& exception) {
  return fail(ErrorCode::OutOfMemory, "{}: {}", label, exception.what());
}

Result<std::vector<TokenId>> parse_stop_ids(std::string_view text, int vocab, const std::string& label) {
  LILY_TRY(const json::Object object, parse_strict_object(text, label));
  return token_ids(object.if_contains("eos_token_id"), vocab, label);
}

}  // namespace lily
