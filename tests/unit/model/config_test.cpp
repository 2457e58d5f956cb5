// Configurations: the real one, harmless variants, other architectures and quantisations by name.
#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>

#include "base/json.h"
#include "base/mmap_file.h"

namespace lily {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Edit = std::function<void(json::Object& outer, json::Object& text)>;

std::string edited(const Shape& shape, const Edit& edit) {
  json::Object config = json::parse(write_config(shape))->get_object();
  edit(config, config["text_config"].get_object());
  return json::dump(config);
}

Result<ModelConfig> parse(const std::string& text) {
  return parse_config(text, "config.json");
}

void expect_refused(const std::string& text, const ::testing::Matcher<std::string>& message,
                    ErrorCode code = ErrorCode::Unsupported) {
  const auto config = parse(text);
  ASSERT_FALSE(config) << ::testing::PrintToString(message);
  EXPECT_EQ(config.error().code, code) << config.error().message;
  EXPECT_THAT(config.error().message, message);
}

void expect_refused(const Edit& edit, const ::testing::Matcher<std::string>& message) {
  expect_refused(edited(kQwen36_35B_A3B, edit), message);
}

TEST(Config, BothShapes) {
  for (const Shape* shape : kShapes) {
    const auto config = parse(write_config(*shape));
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->shape, shape);
    EXPECT_EQ(config->max_positions, shape->max_positions);
    EXPECT_EQ(config->eos_ids, (std::vector<TokenId>{first_added_id(*shape) + 2, first_added_id(*shape)}));
    EXPECT_EQ(config->bits_of("layers.3.mlp.gate"), 8);
    EXPECT_EQ(config->bits_of("layers.3.mlp.shared_expert.up_proj"), 4);
    EXPECT_TRUE(config->mtp_layers);
  }
}

TEST(Config, PublishedFile) {
  const char* shared = std::getenv("LILY_SHARED");
  const std::filesystem::path path =
      std::filesystem::path(shared != nullptr ? shared : LILY_SOURCE_DIR "/../shared") / "checkpoint/config.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
  const auto config = parse(*read_file(path, 1 << 20));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->shape, &kQwen36_35B_A3B);
}

TEST(Config, FlatTextConfig) {
  json::Object config = json::parse(write_config(kQwen36_35B_A3B))->get_object();
  const json::Object text = config["text_config"].get_object();
  config.erase("text_config");
  for (const auto& [key, value] : text) config.insert_or_assign(key, value);
  const auto parsed = parse(json::dump(config));
  ASSERT_TRUE(parsed) << parsed.error().message;
}

TEST(Config, HarmlessVariants) {
  const Edit edits[] = {
      [](json::Object&, json::Object& text) { text["rope_parameters"].get_object().erase("mrope_section"); },
      [](json::Object&, json::Object& text) { text["rope_parameters"].get_object().erase("partial_rotary_factor"); },
      [](json::Object&, json::Object& text) { text.erase("rope_parameters"); },
      [](json::Object&, json::Object& text) { text.erase("layer_types"); },
      [](json::Object&, json::Object& text) { text["norm_topk_prob"] = true; },
      [](json::Object&, json::Object& text) { text["rope_scaling"] = nullptr; },
      [](json::Object&, json::Object& text) { text["max_position_embeddings"] = 32768; },
      [](json::Object& outer, json::Object&) { outer.erase("quantization_config"); },
      [](json::Object& outer, json::Object&) { outer.erase("quantization"); },
      [](json::Object& outer, json::Object&) { outer["vision_config"] = json::Object(); }};
  for (const Edit& edit : edits) {
    const auto config = parse(edited(kQwen36_35B_A3B, edit));
    EXPECT_TRUE(config) << config.error().message;
  }
}

TEST(Config, OverridesWithoutPrefix) {
  const auto config = parse(edited(kQwen36_35B_A3B, [](json::Object& outer, json::Object&) {
    outer.erase("quantization_config");
    outer["quantization"] =
        json::Object{{"group_size", 64}, {"bits", 4}, {"model.layers.5.mlp.gate", json::Object{{"bits", 8}}}};
  }));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->bits_of("layers.5.mlp.gate"), 8);
  EXPECT_EQ(config->bits_of("layers.6.mlp.gate"), 4);
}

TEST(Config, L10FirstMismatchIsNamed) {
  expect_refused([](json::Object&, json::Object& text) { text["num_experts"] = 512; },
                 AllOf(HasSubstr("num_experts: expected 256 (Qwen3.6-35B-A3B), found \"512\"")));
  expect_refused([](json::Object&, json::Object& text) { text["full_attention_interval"] = 3; },
                 HasSubstr("full_attention_interval: expected 4"));
  expect_refused([](json::Object& outer, json::Object&) { outer["tie_word_embeddings"] = true; },
                 HasSubstr("tie_word_embeddings: expected false, found \"true\""));
  expect_refused([](json::Object&, json::Object& text) { text["tie_word_embeddings"] = true; },
                 HasSubstr("tie_word_embeddings: expected false"));
  expect_refused([](json::Object&, json::Object& text) { text["max_position_embeddings"] = 0; },
                 HasSubstr("max_position_embeddings: expected 1 to 262144, found \"0\""));
  expect_refused([](json::Object&, json::Object& text) { text["max_position_embeddings"] = 1010000; },
                 HasSubstr("max_position_embeddings"));
  expect_refused([](json::Object&, json::Object& text) { text["rope_parameters"].get_object()["rope_type"] = "yarn"; },
                 HasSubstr("rope_type"));
  expect_refused([](json::Object&, json::Object& text) { text["rope_parameters"].get_object()["rope_theta"] = 10000; },
                 HasSubstr("rope_theta: expected 10000000"));
  expect_refused([](json::Object&, json::Object& text) { text["partial_rotary_factor"] = 1.0; },
                 HasSubstr("partial_rotary_factor: expected 0.25"));
  expect_refused([](json::Object&, json::Object& text) { text["layer_types"].get_array()[3] = "linear_attention"; },
                 HasSubstr("layer_types[3]"));
  expect_refused([](json::Object&, json::Object& text) { text["hidden_act"] = "gelu"; }, HasSubstr("hidden_act"));
  expect_refused([](json::Object&, json::Object& text) { text.erase("hidden_size"); },
                 HasSubstr("hidden_size: expected 2048 (Qwen3.6-35B-A3B), found nothing"));
  expect_refused([](json::Object&, json::Object& text) { text["num_hidden_layers"] = "forty"; },
                 HasSubstr("num_hidden_layers: expected 40"));
}

TEST(Config, L11OtherKindsAreNamed) {
  expect_refused(R"({"model_type":"qwen3_5","text_config":{"model_type":"qwen3_5_text","hidden_size":2560},)"
                 R"("quantization":{"bits":4,"group_size":64}})",
                 AllOf(HasSubstr("a dense Qwen3.5 model"), HasSubstr("wanted:")));
  expect_refused(R"({"model_type":"llama"})", HasSubstr("another architecture (model_type \"llama\")"));
  expect_refused(R"({"model_type":"qwen3_5_mtp"})", HasSubstr("MTP drafter"));
  expect_refused("{}", HasSubstr("no model_type"));
  expect_refused(
      [](json::Object& outer, json::Object&) { outer.erase("quantization"), outer.erase("quantization_config"); },
      HasSubstr("unquantised weights (dtype \"bfloat16\")"));
  for (const char* method : {"awq", "gptq", "fp8", "bitsandbytes", "compressed-tensors", "mxfp4"})
    expect_refused(
        [&](json::Object& outer, json::Object&) {
          outer.erase("quantization");
          outer["quantization_config"] = json::Object{{"quant_method", method}, {"bits", 4}, {"group_size", 128}};
        },
        AllOf(HasSubstr("weights quantised by"), HasSubstr("wanted:")));
  const auto block = [](json::Object value) {
    return [value](json::Object& outer, json::Object&) {
      outer["quantization"] = value;
      outer["quantization_config"] = value;
    };
  };
  expect_refused(block({{"bits", 8}, {"group_size", 64}}), HasSubstr("MLX 8-bit quantisation (int8)"));
  expect_refused(block({{"bits", 3}, {"group_size", 64}}), HasSubstr("MLX 3-bit"));
  expect_refused(block({{"bits", 4}, {"group_size", 32}}), HasSubstr("group size 32"));
  expect_refused(block({{"bits", 4}, {"group_size", 32}, {"mode", "mxfp4"}}), HasSubstr("mode \"mxfp4\""));
  expect_refused(block({{"bits", 4}, {"group_size", 64}, {"language_model.lm_head", false}}),
                 HasSubstr("is not quantised"));
}

TEST(Config, DamagedFiles) {
  expect_refused("", HasSubstr("not valid JSON"), ErrorCode::Corrupt);
  expect_refused("[]", HasSubstr("expected a JSON object"), ErrorCode::Corrupt);
  expect_refused(R"({"model_type":"a","model_type":"b"})", HasSubstr("comes twice"), ErrorCode::Corrupt);
  expect_refused(
      edited(kLilyTiny, [](json::Object& outer, json::Object&) { outer["quantization"].get_object()["bits"] = 5; }),
      HasSubstr("MLX 5-bit"));
  expect_refused(edited(kLilyTiny, [](json::Object& outer,
                                      json::Object&) { outer["quantization_config"].get_object().erase("mode"); }),
                 HasSubstr("quantization and quantization_config differ"), ErrorCode::Corrupt);
  expect_refused(edited(kLilyTiny, [](json::Object& outer, json::Object&) { outer["eos_token_id"] = "end"; }),
                 HasSubstr("eos_token_id"), ErrorCode::Corrupt);
  expect_refused(edited(kLilyTiny, [](json::Object& outer, json::Object&) { outer["text_config"] = 7; }),
                 HasSubstr("text_config: expected an object"));
}

}  // namespace
}  // namespace lily
