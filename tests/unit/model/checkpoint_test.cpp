// Damaged, incomplete and foreign checkpoints: each is refused in one line that says what to do, before any weight is
// read; harmless oddities load with a note.
#include "model/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "support/crafted_checkpoint.h"

namespace lily {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

const std::string kFirstLayer = "language_model.model.layers.0.";

void expect_refused(const fs::path& path, ErrorCode code, const ::testing::Matcher<std::string>& message) {
  const auto checkpoint = Checkpoint::open(path);
  ASSERT_FALSE(checkpoint) << ::testing::PrintToString(message);
  EXPECT_EQ(checkpoint.error().code, code) << checkpoint.error().message;
  EXPECT_THAT(checkpoint.error().message, message);
  EXPECT_THAT(checkpoint.error().message, Not(HasSubstr("\n")));
}

void expect_refused(CraftedCheckpoint& crafted, ErrorCode code, const ::testing::Matcher<std::string>& message) {
  crafted.write();
  expect_refused(crafted.path(), code, message);
}

Checkpoint expect_opens(const fs::path& path) {
  auto checkpoint = Checkpoint::open(path);
  if (!checkpoint) {
    ADD_FAILURE() << checkpoint.error().message;
    std::abort();
  }
  return std::move(*checkpoint);
}

TEST(Checkpoint, CraftedOneOpens) {
  CraftedCheckpoint crafted;
  crafted.write();
  const Checkpoint checkpoint = expect_opens(crafted.path());
  EXPECT_EQ(&checkpoint.shape(), &kLilyTiny);
  EXPECT_EQ(checkpoint.text_bytes(), 13632480u);
}

// L06: weight files.

TEST(Checkpoint, L06MissingShard) {
  CraftedCheckpoint crafted;
  crafted.write();
  fs::remove(crafted.path() / CraftedCheckpoint::shard_name(1));
  expect_refused(crafted.path(), ErrorCode::NotFound,
                 AllOf(HasSubstr("1 problem"), HasSubstr("model-00002-of-00002.safetensors: no such file")));
}

TEST(Checkpoint, L06ShortShard) {
  CraftedCheckpoint crafted;
  crafted.write();
  const fs::path shard = crafted.path() / CraftedCheckpoint::shard_name(0);
  fs::resize_file(shard, fs::file_size(shard) - 100);
  expect_refused(crafted.path(), ErrorCode::Corrupt,
                 AllOf(HasSubstr("model-00001-of-00002.safetensors"), HasSubstr("100 bytes past the end"),
                       HasSubstr("cut short")));
}

TEST(Checkpoint, L06LfsPointer) {
  CraftedCheckpoint crafted;
  crafted.write();
  write_text(crafted.path() / CraftedCheckpoint::shard_name(0),
             "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 99\n");
  expect_refused(crafted.path(), ErrorCode::Unsupported, HasSubstr("Git LFS pointer"));
}

TEST(Checkpoint, L06ShardOutsideTheIndex) {
  CraftedCheckpoint crafted;
  crafted.write();
  fs::copy(crafted.path() / CraftedCheckpoint::shard_name(0), crafted.path() / "model-00003-of-00003.safetensors");
  expect_refused(crafted.path(), ErrorCode::Corrupt,
                 HasSubstr("\"model-00003-of-00003.safetensors\" is not in the index"));
}

TEST(Checkpoint, L06IndexNamesTheWrongShard) {
  CraftedCheckpoint crafted;
  crafted.write();
  const std::string name = "model.safetensors.index.json";
  crafted.replace(name, "language_model.model.norm.weight\":\"model-00002",
                  "language_model.model.norm.weight\":\"model-00001");
  write_text(crafted.path() / name, crafted.texts[name]);
  expect_refused(crafted.path(), ErrorCode::Corrupt,
                 AllOf(HasSubstr("2 problems"), HasSubstr("language_model.model.norm.weight")));
}

TEST(Checkpoint, L06ManyProblemsAreCounted) {
  CraftedCheckpoint crafted;
  std::string index = R"({"weight_map":{"t0":"s0.safetensors")";
  for (int i = 1; i < 40; ++i) index += ",\"t" + std::to_string(i) + "\":\"s" + std::to_string(i) + ".safetensors\"";
  crafted.texts["model.safetensors.index.json"] = index + "}}";
  expect_refused(crafted, ErrorCode::NotFound, AllOf(HasSubstr("42 problems"), HasSubstr("and 39 more")));
}

TEST(Checkpoint, IndexMustNotLeaveTheDirectory) {
  for (const char* name : {"../model.safetensors", "/etc/passwd", "..", "", "two\\nlines"}) {
    CraftedCheckpoint crafted;
    crafted.texts["model.safetensors.index.json"] = R"({"weight_map":{"a":")" + std::string(name) + "\"}}";
    expect_refused(crafted, ErrorCode::Corrupt, HasSubstr("name of a file beside the index"));
  }
}

TEST(Checkpoint, IndexWithDuplicates) {
  CraftedCheckpoint crafted;
  crafted.texts["model.safetensors.index.json"] = R"({"weight_map":{"a":"b.safetensors","a":"c.safetensors"}})";
  expect_refused(crafted, ErrorCode::Corrupt, HasSubstr("\"a\" comes twice"));
}

TEST(Checkpoint, NoIndexButShards) {
  CraftedCheckpoint crafted;
  crafted.write();
  fs::remove(crafted.path() / "model.safetensors.index.json");
  expect_refused(crafted.path(), ErrorCode::NotFound, HasSubstr("download the index too"));
}

TEST(Checkpoint, SingleFileWithoutIndex) {
  CraftedCheckpoint crafted;
  for (CraftedTensor& tensor : crafted.tensors) tensor.shard = 0;
  crafted.write();
  fs::remove(crafted.path() / "model.safetensors.index.json");
  fs::remove(crafted.path() / CraftedCheckpoint::shard_name(1));
  fs::rename(crafted.path() / CraftedCheckpoint::shard_name(0), crafted.path() / "model.safetensors");
  expect_opens(crafted.path());
}

// L07: tensors.

TEST(Checkpoint, L07MissingTensorsAreNamed) {
  CraftedCheckpoint crafted;
  crafted.remove("language_model.model.layers.6.linear_attn.A_log");
  crafted.remove(kFirstLayer + "mlp.gate.scales");
  expect_refused(crafted, ErrorCode::Corrupt,
                 AllOf(HasSubstr("2 missing tensors"), HasSubstr("layers.6.linear_attn.A_log"),
                       HasSubstr("layers.0.mlp.gate.scales")));
}

TEST(Checkpoint, L07KnownPrefixesAreAccepted) {
  for (const char* prefix : {"model.", "language_model.", ""}) {
    CraftedCheckpoint crafted;
    for (CraftedTensor& tensor : crafted.tensors)
      if (tensor.name.starts_with("language_model.model."))
        tensor.name = prefix + tensor.name.substr(std::strlen("language_model.model."));
    crafted.write();
    expect_opens(crafted.path());
  }
}

TEST(Checkpoint, L07SameTensorUnderTwoPrefixes) {
  CraftedCheckpoint crafted;
  crafted.tensors.push_back({"model.norm.weight", "BF16", {256}, 1});
  expect_refused(crafted, ErrorCode::Corrupt, HasSubstr("comes twice, perhaps under another prefix"));
}

TEST(Checkpoint, L07VisionAndMtpAreSkipped) {
  CraftedCheckpoint crafted;
  crafted.tensors.push_back({"vision_tower.blocks.0.norm1.weight", "F16", {8}, 1});
  crafted.tensors.push_back({"language_model.mtp.fc.weight", "U32", {8, 8}, 1});
  crafted.write();
  const Checkpoint checkpoint = expect_opens(crafted.path());
  EXPECT_THAT(checkpoint.notes(), Contains(HasSubstr("1 vision tensors are skipped")));
  EXPECT_THAT(checkpoint.notes(), Contains(HasSubstr("multi-token-prediction head are skipped")));
  EXPECT_EQ(checkpoint.text_bytes(), 13632480u);
}

TEST(Checkpoint, UnknownTensor) {
  CraftedCheckpoint crafted;
  crafted.tensors.push_back({kFirstLayer + "mlp.gate.lora_a", "BF16", {8}, 1});
  expect_refused(crafted, ErrorCode::Unsupported, HasSubstr("mlp.gate.lora_a"));
}

TEST(Checkpoint, WrongShapeAndType) {
  {
    CraftedCheckpoint crafted;
    crafted.tensor(kFirstLayer + "input_layernorm.weight").dims = {255};
    expect_refused(crafted, ErrorCode::Unsupported, HasSubstr("expected BF16 [256], found BF16 [255]"));
  }
  {
    CraftedCheckpoint crafted;
    crafted.tensor(kFirstLayer + "linear_attn.dt_bias").dtype = "F32";
    expect_refused(crafted, ErrorCode::Unsupported, HasSubstr("expected BF16 [4], found F32 [4]"));
  }
  {
    CraftedCheckpoint crafted;
    crafted.tensor(kFirstLayer + "mlp.switch_mlp.up_proj.scales").dims = {32, 64, 8};
    expect_refused(crafted, ErrorCode::Unsupported, HasSubstr("expected BF16 [32, 64, 4], found BF16 [32, 64, 8]"));
  }
}

TEST(Checkpoint, FloatALogIsAccepted) {
  CraftedCheckpoint crafted;
  for (CraftedTensor& tensor : crafted.tensors)
    if (tensor.name.ends_with("A_log")) tensor.dtype = "F32";
  crafted.write();
  EXPECT_EQ(expect_opens(crafted.path()).weights().layers[0].gdn->a_log.dtype, Dtype::F32);
}

// Quantisation.

TEST(Checkpoint, BitsOfConfigAndShapesMustAgree) {
  CraftedCheckpoint crafted;
  crafted.tensor(kFirstLayer + "mlp.gate.weight").dims = {32, 32};
  expect_refused(crafted, ErrorCode::Corrupt,
                 AllOf(HasSubstr("layers.0.mlp.gate.weight"), HasSubstr("4 bits a weight, config.json says 8")));
}

TEST(Checkpoint, FourBitRoutersAreAccepted) {
  CraftedCheckpoint crafted;
  json::Object config = json::parse(crafted.texts["config.json"])->get_object();
  for (const char* block : {"quantization", "quantization_config"})
    config[block] = json::Object{{"group_size", 64}, {"bits", 4}};
  crafted.texts["config.json"] = json::dump(config);
  for (CraftedTensor& tensor : crafted.tensors)
    if (tensor.name.ends_with("mlp.gate.weight") || tensor.name.ends_with("shared_expert_gate.weight"))
      tensor.dims.back() = 32;
  crafted.write();
  EXPECT_EQ(expect_opens(crafted.path()).weights().layers[0].moe.router.bits, 4);
}

TEST(Checkpoint, EightBitExpertsAreNot) {
  CraftedCheckpoint crafted;
  json::Object config = json::parse(crafted.texts["config.json"])->get_object();
  for (const char* block : {"quantization", "quantization_config"})
    config[block].get_object()["language_model.model.layers.0.mlp.switch_mlp.up_proj"] =
        json::Object{{"group_size", 64}, {"bits", 8}};
  crafted.texts["config.json"] = json::dump(config);
  crafted.tensor(kFirstLayer + "mlp.switch_mlp.up_proj.weight").dims.back() = 64;
  expect_refused(crafted, ErrorCode::Unsupported, HasSubstr("has 8 bits, expected 4"));
}

// L09: only the layout of the convolution tells raw from converted.

TEST(Checkpoint, L09MtpDoesNotChangeNorms) {
  CraftedCheckpoint crafted;
  crafted.tensors.push_back({"mtp.fc.weight", "BF16", {8, 8}, 1});
  crafted.write();
  const Checkpoint checkpoint = expect_opens(crafted.path());
  EXPECT_EQ(checkpoint.weights().norm.load_float(0), 0.0f);  // as stored
}

TEST(Checkpoint, L09RawLayoutIsRefused) {
  CraftedCheckpoint crafted;
  for (CraftedTensor& tensor : crafted.tensors)
    if (tensor.name.ends_with("conv1d.weight")) tensor.dims = {1024, 1, 4};
  expect_refused(crafted, ErrorCode::Unsupported, AllOf(HasSubstr("original Hugging Face"), HasSubstr("wanted:")));
}

// L14: paths and links.

TEST(Checkpoint, L14SnapshotOfLinks) {
  CraftedCheckpoint crafted;
  crafted.write();
  const TempDirectory cache;
  const fs::path model = cache / "models--mlx-community--Tiny-4bit";
  const fs::path snapshot = model / "snapshots" / "0123456789abcdef";
  fs::create_directories(snapshot);
  fs::create_directories(model / "blobs");
  int n = 0;
  for (const auto& entry : fs::directory_iterator(crafted.path())) {
    const fs::path blob = model / "blobs" / std::to_string(n++);
    fs::copy(entry.path(), blob);
    fs::create_symlink(fs::path("../../blobs") / blob.filename(), snapshot / entry.path().filename());
  }
  EXPECT_EQ(expect_opens(snapshot).id(), "Tiny-4bit");
  EXPECT_EQ(expect_opens(snapshot.string() + "/").id(), "Tiny-4bit");

  fs::remove(fs::canonical(snapshot / CraftedCheckpoint::shard_name(1)));
  expect_refused(snapshot, ErrorCode::NotFound,
                 AllOf(HasSubstr("dangling link"), HasSubstr("download the file again")));
}

TEST(Checkpoint, L14OddPaths) {
  const TempDirectory temp;
  const fs::path odd = temp / "ein Pfad mit \xc3\xa4 und \xe6\xa8\xa1\xe5\x9e\x8b";
  CraftedCheckpoint crafted;
  crafted.write();
  fs::copy(crafted.path(), odd);
  EXPECT_EQ(expect_opens(odd).id(), odd.filename().string());
  EXPECT_EQ(expect_opens(odd.string() + "//").id(), odd.filename().string());
  EXPECT_EQ(expect_opens(odd / ".").id(), odd.filename().string());
  fs::create_directory_symlink(odd, temp / "link");
  expect_opens(temp / "link");
  fs::create_directory_symlink(temp / "nowhere", temp / "dangling");
  expect_refused(temp / "dangling", ErrorCode::NotFound, HasSubstr("dangling link"));
  expect_refused(temp / "absent", ErrorCode::NotFound, HasSubstr("no such directory"));
  expect_refused(temp.path(), ErrorCode::NotFound, HasSubstr("no config.json"));
}

// Gives root's rights up for a while; others have none to give.
class AsNobody {
 public:
  AsNobody() : was_root_(::geteuid() == 0) {
    if (was_root_) EXPECT_EQ(::seteuid(65534), 0);
  }
  ~AsNobody() {
    if (was_root_) EXPECT_EQ(::seteuid(0), 0);
  }

 private:
  bool was_root_;
};

TEST(Checkpoint, L14UnreadableDirectory) {
  const AsNobody nobody;  // root may read everything
  CraftedCheckpoint crafted;
  crafted.write();
  fs::permissions(crafted.path(), fs::perms::none);
  expect_refused(crafted.path(), ErrorCode::Io, HasSubstr("Permission denied"));
  fs::permissions(crafted.path(), fs::perms::owner_all);
}

TEST(Checkpoint, TextFiles) {
  {
    CraftedCheckpoint crafted;
    crafted.texts.erase("tokenizer.json");
    expect_refused(crafted, ErrorCode::NotFound, HasSubstr("tokenizer.json: no such file"));
  }
  {
    CraftedCheckpoint crafted;  // the template inside tokenizer_config.json, as older conversions have it
    crafted.texts.erase("chat_template.jinja");
    crafted.texts["tokenizer_config.json"] = R"({"chat_template":"inside"})";
    crafted.write();
    EXPECT_EQ(expect_opens(crafted.path()).texts().chat_template, "inside");
  }
  {
    CraftedCheckpoint crafted;
    crafted.texts.erase("chat_template.jinja");
    crafted.write();
    EXPECT_THAT(expect_opens(crafted.path()).notes(), Contains(HasSubstr("no chat template")));
  }
}

TEST(Checkpoint, StopIds) {
  {
    CraftedCheckpoint crafted;
    crafted.texts["generation_config.json"] = R"({"eos_token_id":7})";
    crafted.write();
    EXPECT_EQ(expect_opens(crafted.path()).stop_ids(), std::vector<TokenId>{7});
  }
  {
    CraftedCheckpoint crafted;
    crafted.texts.erase("generation_config.json");
    crafted.write();
    EXPECT_EQ(expect_opens(crafted.path()).stop_ids(), (std::vector<TokenId>{1969, 1967}));
  }
  {
    CraftedCheckpoint crafted;
    crafted.texts["generation_config.json"] = R"({"eos_token_id":[7,2048]})";
    expect_refused(crafted, ErrorCode::Corrupt, HasSubstr("ids from 0 to 2047"));
  }
}

}  // namespace
}  // namespace lily
