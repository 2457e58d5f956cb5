#include "engine/generate.h"

#include <condition_variable>
#include <mutex>
#include <utility>

namespace lily {
namespace {

class Waiter : public EventSink {
 public:
  Waiter(Engine& engine, const std::function<bool(TokenId)>& on_token) : engine_(engine), on_token_(on_token) {}

  void on_token(TokenId id) override {
    if (stopped_) return;
    tokens_.push_back(id);
    if (on_token_ && !on_token_(id)) {
      stopped_ = true;
      engine_.cancel(request_id());
    }
  }

  void on_finish(const Finish& finish) override {
    const std::lock_guard lock(mutex_);
    finish_ = finish;
    changed_.notify_all();
  }

  void set_request_id(RequestId id) {
    const std::lock_guard lock(mutex_);
    id_ = id;
    changed_.notify_all();
  }

  Result<GenerateResult> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return finish_.has_value(); });
    if (finish_->reason == FinishReason::Error) return tl::unexpected<Error>(*finish_->error);
    return GenerateResult{.tokens = std::move(tokens_), .finish = *finish_};
  }

 private:
  // The first token may be sampled before submit() has returned the id.
  RequestId request_id() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return id_.has_value(); });
    return *id_;
  }

  Engine& engine_;
  const std::function<bool(TokenId)>& on_token_;
  std::vector<TokenId> tokens_;  // engine's thread until on_finish
  bool stopped_ = false;         // engine's thread only
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<RequestId> id_;
  std::optional<Finish> finish_;
};

}  // namespace

Result<GenerateResult> generate_blocking(Engine& engine, Request request,
                                         const std::function<bool(TokenId)>& on_token) {
  const auto waiter = std::make_shared<Waiter>(engine, on_token);
  LILY_TRY(const RequestId id, engine.submit(std::move(request), waiter));
  waiter->set_request_id(id);
  return waiter->wait();
}

}  // namespace lily
