#include "main/tokens/jwt_source.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "base/check.h"
#include "sign/testing/test_token.h"

namespace gpusched {
namespace {

using sign::JwtAlgorithm;
using sign::TestTokenKey;

/// The keys that a source has told, and a URL that answers as it is told.
class Told {
 public:
  Told() { CHECK(::mkdtemp(folder_.data()) != nullptr); }
  ~Told() { std::filesystem::remove_all(folder_); }
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;

  void take(JwtKeysPtr keys) {
    const std::lock_guard lock(mutex_);
    told_.push_back(std::move(keys));
    changed_.notify_all();
  }
  /// The newest keys, after so many times.
  JwtKeysPtr after(std::size_t times) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return told_.size() >= times; });
    return told_.back();
  }
  void answer(Result<std::string> with) {
    const std::lock_guard lock(mutex_);
    answer_ = std::move(with);
  }
  void wait_for_fetches(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return fetches_ >= count; });
  }
  int fetches() {
    const std::lock_guard lock(mutex_);
    return fetches_;
  }
  JwtSourceOptions url_options() {
    JwtSourceOptions options;
    options.keys = "https://idp.example/keys";
    options.refresh = hours(1);
    options.fetch = [this]() -> Result<std::string> {
      const std::lock_guard lock(mutex_);
      ++fetches_;
      changed_.notify_all();
      return answer_;
    };
    return options;
  }
  std::string write(const std::string& text, mode_t mode = 0644) {
    const std::string path = folder_ + "/keys.json";
    std::ofstream(path + ".new") << text;
    ::chmod((path + ".new").c_str(), mode);
    std::filesystem::rename(path + ".new", path);
    return path;
  }
  std::function<void(JwtKeysPtr)> listener() {
    return [this](JwtKeysPtr keys) { take(std::move(keys)); };
  }

 private:
  std::string folder_ = (std::filesystem::temp_directory_path() / "gpusched_jwks_XXXXXX").string();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<JwtKeysPtr> told_;
  Result<std::string> answer_ = Error{.code = ErrorCode::kUnavailable, .message = "not yet"};
  int fetches_ = 0;
};

TEST(JwtSource, ReadsAFileAgainWhenItChanges) {
  Told told;
  const TestTokenKey first(JwtAlgorithm::kEs256, "a"), second(JwtAlgorithm::kEs256, "b");
  JwtSourceOptions options;
  options.keys = told.write(first.set());
  options.look = milliseconds(5);
  const JwtSource source(options, nullptr, told.listener());
  EXPECT_NE(told.after(1)->find("a"), nullptr);
  told.write(second.set());
  EXPECT_NE(told.after(2)->find("b"), nullptr);
  // A file that is wrong changes nothing.
  told.write("{");
  told.write(first.set() + " ");
  EXPECT_NE(told.after(3)->find("a"), nullptr);
}

TEST(JwtSource, TakesSecretsFromAFileThatNobodyElseReads) {
  Told told;
  const TestTokenKey key(JwtAlgorithm::kHs256, "s");
  JwtSourceOptions options;
  options.keys = told.write(key.set(), 0600);
  EXPECT_TRUE(load_jwt_keys(options).ok());
  told.write(key.set(), 0640);
  ASSERT_FALSE(load_jwt_keys(options).ok());
  EXPECT_NE(load_jwt_keys(options).error().message.find("is a secret"), std::string::npos);
  told.write(TestTokenKey(JwtAlgorithm::kEs256).set(), 0666);
  EXPECT_EQ(load_jwt_keys(options).error().code, ErrorCode::kPermissionDenied);
  options.keys += ".missing";
  EXPECT_EQ(load_jwt_keys(options).error().code, ErrorCode::kNotFound);
  JwtSourceOptions url = told.url_options();
  told.answer(key.set());
  EXPECT_NE(load_jwt_keys(url).error().message.find("is a secret"), std::string::npos);
}

TEST(JwtSource, AsksAUrlUntilItAnswersAndKeepsWhatItHad) {
  Told told;
  const TestTokenKey key(JwtAlgorithm::kEdDsa, "a");
  JwtSource source(told.url_options(), nullptr, told.listener());
  told.wait_for_fetches(1);
  told.answer(key.set());
  EXPECT_NE(told.after(1)->find("a"), nullptr);
  told.answer(Error{.code = ErrorCode::kUnavailable, .message = "gone"});
  const int before = told.fetches();
  source.look_again();
  told.wait_for_fetches(before + 1);
  told.answer(std::string("<html>"));
  source.look_again();
  told.wait_for_fetches(before + 2);
  told.answer(key.set());
  source.look_again();
  EXPECT_NE(told.after(2), nullptr);
}

TEST(JwtSource, ForgetsKeysThatBecameTooOld) {
  Told told;
  told.answer(TestTokenKey(JwtAlgorithm::kEdDsa).set());
  JwtSourceOptions options = told.url_options();
  options.refresh = options.stale = milliseconds(20);
  const JwtSource source(options, nullptr, told.listener());
  EXPECT_NE(told.after(1), nullptr);
  told.answer(Error{.code = ErrorCode::kTimeout, .message = "no answer in time"});
  std::size_t times = 1;
  while (told.after(times) != nullptr) ++times;
}

TEST(JwtSource, UnknownKeysAskOnceInAWhile) {
  Told told;
  told.answer(TestTokenKey(JwtAlgorithm::kEdDsa).set());
  JwtSource source(told.url_options(), nullptr, told.listener());
  told.after(1);
  const int before = told.fetches();
  source.unknown_key();
  told.wait_for_fetches(before + 1);
  told.after(2);
  for (int i = 0; i < 100'000; ++i) source.unknown_key();
  // A fetch that is asked for on purpose comes all the same, and is the only one.
  source.look_again();
  told.after(3);
  EXPECT_EQ(told.fetches(), before + 2);
}

TEST(JwtSource, AsksNoAddressThatIsNotPublic) {
  JwtSourceOptions options;
  for (const char* url :
       {"https://127.0.0.1:1/keys", "https://localhost:1/keys", "https://[::1]:1/keys", "https://10.0.0.1/",
        "https://169.254.169.254/latest", "https://0.0.0.0:1", "https://[::ffff:127.0.0.1]:1/"}) {
    options.keys = url;
    const auto loaded = load_jwt_keys(options);
    ASSERT_FALSE(loaded.ok()) << url;
    EXPECT_EQ(loaded.error().code, ErrorCode::kPermissionDenied) << url << loaded.error().message;
  }
  // A host that is named is asked; nobody is there.
  options.keys = "https://127.0.0.1:1/keys";
  options.private_hosts = {"127.0.0.1"};
  EXPECT_EQ(load_jwt_keys(options).error().code, ErrorCode::kUnavailable);
  for (const char* url : {"https://", "https://a b/", "https://h:x/"}) {
    options.keys = url;
    EXPECT_EQ(load_jwt_keys(options).error().code, ErrorCode::kInvalidArgument) << url;
  }
}

}  // namespace
}  // namespace gpusched
