// The prefix cache on disk: it survives a restart, and no file in its directory, whatever its state, harms a request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>

#include "engine/cache_disk.h"
#include "engine/cache_file.h"
#include "support/engine_support.h"
#include "support/random_schedule.h"

namespace lily {
namespace {

namespace fs = std::filesystem;
using fake::expected_answer;
using test::make_engine;
using test::make_prompt;
using test::run;
using test::operator+;
using Tokens = std::vector<TokenId>;

class Persistence : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "lily-cache-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { fs::remove_all(directory_); }

  EngineOptions options() const {
    EngineOptions options;
    options.cache_directory = directory_;
    options.fingerprint = "checkpoint";
    return options;
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(directory_)) files.push_back(entry.path());
    return files;
  }
  // Runs one prompt in an engine of its own, and returns what it took from the cache.
  std::int64_t cached_in_new_engine(const EngineOptions& options, const Tokens& prompt) {
    const auto engine = make_engine(options);
    const auto result = run(*engine, {.prompt = prompt, .max_tokens = 10, .stop_ids = {}});
    EXPECT_EQ(result.tokens, expected_answer(prompt, 10, {}));
    return result.finish.usage.cached_tokens;
  }

  std::string directory_;
};

TEST_F(Persistence, SurvivesARestart) {
  const Tokens prompt = make_prompt(1, 1000);
  EXPECT_EQ(cached_in_new_engine(options(), prompt), 0);
  EXPECT_FALSE(files().empty());
  EXPECT_EQ(cached_in_new_engine(options(), prompt), 999);
  EXPECT_EQ(cached_in_new_engine(options(), make_prompt(1, 1200)), 999);  // the end state has sampled tokens behind it
  EXPECT_EQ(cached_in_new_engine(options(), make_prompt(2, 1000)), 0);
}

TEST_F(Persistence, AnotherCheckpointFindsNothing) {
  const Tokens prompt = make_prompt(1, 1000);
  cached_in_new_engine(options(), prompt);
  EngineOptions other = options();
  other.fingerprint = "another";
  EXPECT_EQ(cached_in_new_engine(other, prompt), 0);
  EXPECT_EQ(cached_in_new_engine(options(), prompt), 999);
}

TEST_F(Persistence, DamagedFilesAreIgnored) {
  const Tokens prompt = make_prompt(1, 1000);
  cached_in_new_engine(options(), prompt);
  std::vector<std::pair<fs::path, std::string>> sound;
  for (const fs::path& path : files()) {
    std::ifstream in(path, std::ios::binary);
    sound.emplace_back(path, std::string(std::istreambuf_iterator<char>(in), {}));
  }
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    for (const auto& [path, content] : sound) {
      std::string damaged = content;
      switch (round % 4) {
        case 0:
          damaged.resize(random() % damaged.size());
          break;
        case 1:
          damaged[random() % damaged.size()] ^= static_cast<char>(1 << random() % 8);
          break;
        case 2:
          damaged[random() % 64] ^= static_cast<char>(1 + random() % 255);
          break;
        default:
          damaged += "x";
          break;
      }
      std::ofstream(path, std::ios::binary) << damaged;
    }
    EXPECT_EQ(cached_in_new_engine(options(), prompt), 0) << round;
  }
}

TEST_F(Persistence, AFileUnderAnotherNameIsNotTakenForIt) {
  cached_in_new_engine(options(), make_prompt(1, 1000));
  const std::vector<fs::path> first = files();
  cached_in_new_engine(options(), make_prompt(2, 1000));
  for (const fs::path& path : files()) {
    if (path != first.front()) fs::copy_file(first.front(), path, fs::copy_options::overwrite_existing);
  }
  EXPECT_EQ(cached_in_new_engine(options(), make_prompt(2, 1000)), 0);
}

TEST_F(Persistence, StrangersInTheDirectoryAreLeftAlone) {
  std::ofstream(directory_ + "/notes.txt") << "mine";
  std::ofstream(directory_ + "/notes.snapshot") << "mine too";
  EngineOptions small = options();
  small.cache_directory_bytes = 1;
  cached_in_new_engine(small, make_prompt(1, 1000));
  EXPECT_TRUE(fs::exists(directory_ + "/notes.txt"));
  EXPECT_TRUE(fs::exists(directory_ + "/notes.snapshot"));
  EXPECT_EQ(files().size(), 2u);
}

TEST_F(Persistence, APipeUnderASnapshotsNameIsNotWaitedFor) {
  cached_in_new_engine(options(), make_prompt(1, 1000));
  const fs::path path = files().front();
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(cached_in_new_engine(options(), make_prompt(1, 1000)), 0);
}

TEST_F(Persistence, HalvesOfADeadProcessAreSweptAfterAWhile) {
  const std::string name = directory_ + "/0123456789abcdef-0123456789abcdef0123456789abcdef.77.part";
  std::ofstream(name) << "half";
  cached_in_new_engine(options(), make_prompt(1, 10));
  EXPECT_TRUE(fs::exists(name));  // its writer may be alive
  fs::last_write_time(name, fs::file_time_type::clock::now() - std::chrono::hours(2));
  cached_in_new_engine(options(), make_prompt(1, 10));
  EXPECT_FALSE(fs::exists(name));
}

TEST_F(Persistence, KeepsWithinItsLimitAndDropsTheOldest) {
  EngineOptions limited = options();
  limited.cache_directory_bytes = 40000;  // about nine files of 1000 tokens
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(cached_in_new_engine(limited, make_prompt(i, 1000)), 0);
    std::uintmax_t bytes = 0;
    for (const fs::path& path : files()) bytes += fs::file_size(path);
    EXPECT_LE(bytes, 40000u);
  }
  EXPECT_EQ(cached_in_new_engine(limited, make_prompt(11, 1000)), 999);
  EXPECT_EQ(cached_in_new_engine(limited, make_prompt(0, 1000)), 0);
}

TEST_F(Persistence, WhatMemoryGivesUpIsFoundOnDisk) {
  EngineOptions tight = options();
  tight.cache_bytes = 700 << 10;  // a few conversations of 2000 tokens
  const auto engine = make_engine(tight);
  for (int i = 0; i < 12; ++i) run(*engine, {.prompt = make_prompt(i, 2000), .max_tokens = 1});
  EXPECT_GT(engine->stats().cache_evictions, 0u);
  EXPECT_GT(engine->stats().cache_disk_entries, 0u);
  int hits = 0;
  for (int i = 0; i < 12; ++i) {
    const auto again = run(*engine, {.prompt = make_prompt(i, 2000), .max_tokens = 10, .stop_ids = {}});
    EXPECT_EQ(again.tokens, expected_answer(make_prompt(i, 2000), 10, {}));
    hits += again.finish.usage.cached_tokens > 0;
    EXPECT_LE(engine->stats().cache_used_bytes, tight.cache_bytes);
  }
  EXPECT_GT(hits, 0);  // how many depends on how fast the disk takes them
}

TEST_F(Persistence, AFullDiskCostsNothingButTheFile) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit full = before;
  full.rlim_cur = 1000;  // writes fail in the middle of a file
  setrlimit(RLIMIT_FSIZE, &full);
  const Tokens prompt = make_prompt(1, 1000);
  {
    const auto engine = make_engine(options());
    run(*engine, {.prompt = prompt, .max_tokens = 10, .stop_ids = {}});
    EXPECT_EQ(run(*engine, {.prompt = prompt, .max_tokens = 10, .stop_ids = {}}).finish.usage.cached_tokens, 999);
    engine->shutdown(1);
    EXPECT_TRUE(engine->stats().healthy);
  }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(files().empty());  // no halves
  EXPECT_EQ(cached_in_new_engine(options(), prompt), 0);
  EXPECT_EQ(cached_in_new_engine(options(), prompt), 999);
}

TEST_F(Persistence, ADirectoryThatCannotBeIsAnErrorAtStart) {
  std::ofstream(directory_ + "/file") << "x";
  EngineOptions impossible = options();
  impossible.cache_directory = directory_ + "/file/cache";
  const auto engine = Engine::create(std::make_unique<fake::FakeBackend>(), impossible);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::Io);
}

TEST_F(Persistence, RandomSchedulesOverRestarts) {
  const test::Oracle oracle = [](const Tokens& prompt, std::int64_t limit) { return expected_answer(prompt, limit); };
  for (unsigned seed = 0; seed < 30; ++seed) {
    EngineOptions random = test::random_options(seed, 64);
    random.cache_states = 0;
    random.cache_bytes = std::size_t{1} << (16 + seed % 4);
    random.cache_directory = directory_;
    random.cache_directory_bytes = 100000;
    const auto engine = make_engine(random, {.max_batch_tokens = 64});
    test::RandomSchedule(seed % 3, {.longest_message = 400}).run(*engine, oracle);  // seeds come back: so do prompts
  }
}

TEST(SnapshotFile, RoundTrip) {
  std::mt19937 random(1);
  for (const std::size_t n : {0, 1, 1000, 1000000}) {
    for (const bool compressible : {false, true}) {
      std::vector<std::byte> payload(n);
      for (std::byte& byte : payload) byte = static_cast<std::byte>(compressible ? random() % 2 : random());
      const Tokens tokens = make_prompt(1, 17);
      const PackedSnapshot packed = pack_snapshot(42, tokens, payload);
      std::vector<std::byte> file(packed.head.size() + packed.payload.size());
      std::ranges::copy(packed.payload, std::ranges::copy(packed.head, file.begin()).out);
      const auto head = read_snapshot_head(file, 42);
      ASSERT_TRUE(head);
      EXPECT_EQ(head->tokens, tokens);
      EXPECT_EQ(head->compressed, compressible && n > 1);
      const auto unpacked = unpack_snapshot(*head, file, n);
      ASSERT_TRUE(unpacked) << unpacked.error().message;
      EXPECT_EQ(*unpacked, payload);
      EXPECT_EQ(read_snapshot_head(file, 43).error().code, ErrorCode::Unsupported);
      if (n > 0) {
        EXPECT_EQ(unpack_snapshot(*head, file, n - 1).error().code, ErrorCode::OutOfMemory);
      }
    }
  }
}

}  // namespace
}  // namespace lily
