// The two configuration files of a converted checkpoint, written from the shape. For the real shape the result is the
// published config.json to the byte, which pins both this writer and the shape's constants.
#include "model/config.h"
#include "model/indented_json.h"
#include "model/layout.h"

namespace lily {
namespace {

// Places of the added tokens that the configuration names, counted from <|endoftext|>.
constexpr TokenId kImEnd = 2, kVisionStart = 9, kVisionEnd = 10, kImagePad = 12, kVideoPad = 13;

json::Array stop_list(const Shape& shape) {
  return {first_added_id(shape) + kImEnd, first_added_id(shape)};
}

json::Object quantization(const Shape& shape) {
  json::Object block{{"group_size", kGroupSize}, {"bits", 4}, {"mode", "affine"}};
  const json::Object eight{{"group_size", kGroupSize}, {"bits", 8}};
  for (int i = 0; i < shape.n_layers; ++i)
    for (const char* router : {"gate", "shared_expert_gate"})
      block.emplace(mlx_name(fmt::format("layers.{}.mlp.{}", i, router)), eight);
  return block;
}

json::Object text_config(const Shape& shape) {
  const double rotary_factor = static_cast<double>(shape.rotary_dim) / shape.head_dim;
  json::Array layer_types;
  for (int i = 0; i < shape.n_layers; ++i)
    layer_types.emplace_back(shape.is_attention(i) ? "full_attention" : "linear_attention");
  return {{"attention_bias", false},
          {"attention_dropout", 0.0},
          {"attn_output_gate", true},
          {"bos_token_id", first_added_id(shape)},
          {"dtype", "bfloat16"},
          {"eos_token_id", first_added_id(shape)},
          {"full_attention_interval", shape.attention_interval},
          {"head_dim", shape.head_dim},
          {"hidden_act", "silu"},
          {"hidden_size", shape.hidden},
          {"initializer_range", 0.02},
          {"layer_types", layer_types},
          {"linear_conv_kernel_dim", shape.conv_width},
          {"linear_key_head_dim", shape.gdn_head_dim},
          {"linear_num_key_heads", shape.gdn_k_heads},
          {"linear_num_value_heads", shape.gdn_v_heads},
          {"linear_value_head_dim", shape.gdn_head_dim},
          {"mamba_ssm_dtype", "float32"},
          {"max_position_embeddings", shape.max_positions},
          {"model_type", "qwen3_5_moe_text"},
          {"moe_intermediate_size", shape.expert_dim},
          {"mtp_num_hidden_layers", 1},
          {"mtp_use_dedicated_embeddings", false},
          {"num_attention_heads", shape.n_q_heads},
          {"num_experts", shape.n_experts},
          {"num_experts_per_tok", shape.n_active},
          {"num_hidden_layers", shape.n_layers},
          {"num_key_value_heads", shape.n_kv_heads},
          {"output_router_logits", false},
          {"pad_token_id", nullptr},
          {"partial_rotary_factor", rotary_factor},
          {"rms_norm_eps", 1e-6},
          {"rope_parameters",
           {{"mrope_interleaved", true},
            {"mrope_section", {11, 11, 10}},
            {"partial_rotary_factor", rotary_factor},
            {"rope_theta", static_cast<std::int64_t>(kRopeTheta)},
            {"rope_type", "default"}}},
          {"router_aux_loss_coef", 0.001},
          {"shared_expert_intermediate_size", shape.shared_dim},
          {"tie_word_embeddings", false},
          {"use_cache", true},
          {"vocab_size", shape.vocab}};
}

// Of the real model; vision is never run here.
json::Object vision_config() {
  return {{"deepstack_visual_indexes", json::Array()},
          {"depth", 27},
          {"hidden_act", "gelu_pytorch_tanh"},
          {"hidden_size", 1152},
          {"in_channels", 3},
          {"initializer_range", 0.02},
          {"intermediate_size", 4304},
          {"model_type", "qwen3_5_moe"},
          {"num_heads", 16},
          {"num_position_embeddings", 2304},
          {"out_hidden_size", 2048},
          {"patch_size", 16},
          {"spatial_merge_size", 2},
          {"temporal_patch_size", 2}};
}

}  // namespace

TokenId first_added_id(const Shape& shape) {
  return &shape == &kLilyTiny ? 1967 : 248044;
}

std::string write_config(const Shape& shape) {
  const TokenId added = first_added_id(shape);
  json::Object config{{"architectures", json::Array{"Qwen3_5MoeForConditionalGeneration"}},
                      {"eos_token_id", stop_list(shape)},
                      {"image_token_id", added + kImagePad},
                      {"model_type", "qwen3_5_moe"},
                      {"quantization", quantization(shape)},
                      {"quantization_config", quantization(shape)},
                      {"text_config", text_config(shape)},
                      {"tie_word_embeddings", false},
                      {"transformers_version", "4.57.1"},
                      {"video_token_id", added + kVideoPad}};
  if (&shape != &kLilyTiny) config.emplace("vision_config", vision_config());
  config.emplace("vision_end_token_id", added + kVisionEnd);
  config.emplace("vision_start_token_id", added + kVisionStart);
  return indented_json(config);
}

std::string write_generation_config(const Shape& shape) {
  const TokenId end_of_text = first_added_id(shape);
  return indented_json(json::Object{{"bos_token_id", end_of_text},
                                    {"do_sample", true},
                                    {"eos_token_id", stop_list(shape)},
                                    {"pad_token_id", end_of_text},
                                    {"temperature", 1.0},
                                    {"top_k", 20},
                                    {"top_p", 0.95}}) +
         "\n";
}

}  // namespace lily
