#include "node/link/enroll.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>

#include "gpusched/v1/node.grpc.pb.h"
#include "node/link/scheduler_channel.h"
#include "sign/keys/token_proof.h"
#include "sign/node_certificate.h"

namespace gpusched {
namespace {

constexpr int64_t kLookEvery_s = 3'600;  ///< While the certificate is young.
constexpr int64_t kTryAgain_s = 60;  ///< After a request that had no good answer; a tenth of a short time.

/// The key that an earlier try was kept with, or a new one. With it a token that was used by us is ours
/// again.
Result<std::string> kept_key(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (!text.empty() && sign::make_node_request(text)) return text;
  std::string made = sign::make_node_key();
  if (const Result<Unit> written = write_private(path, made); !written) return written.error();
  return made;
}

Error no_answer(const SchedulerChannel& way, const std::string& address, const grpc::Status& status) {
  return {.code = ErrorCode::kUnavailable,
          .message = "no certificate from the scheduler at " + address + ": " + way.why(status) +
                     "; run this again with the same token"};
}

}  // namespace

std::string node_file_of(const std::string& data_folder) { return data_folder + "/node.pem"; }

Result<Unit> write_private(const std::string& path, const std::string& text) {
  const std::string draft = path + ".new";
  const auto failed = [](const std::string& what) {
    return Error{.code = ErrorCode::kIo, .message = "cannot write " + what + ": " + std::strerror(errno)};
  };
  ::unlink(draft.c_str());
  const int file = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return failed(draft);
  const bool written =
      ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(file) == 0;
  const Error trouble = failed(draft);
  ::close(file);
  if (!written) {
    ::unlink(draft.c_str());
    return trouble;
  }
  if (::rename(draft.c_str(), path.c_str()) != 0) return failed(path);
  return Unit{};
}

Result<Unit> enroll(const std::string& address, const LinkTls& tls, const std::string& token,
                    const std::string& node_name, const std::string& version, const std::string& data_folder,
                    Duration patience) {
  if (!tls.on) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message =
                     "a node token is sent over TLS only; give --ca with the fingerprint of the scheduler's "
                     "authority (its DATA_DIR/ca/fingerprint), or --ca-file"};
  }
  const std::string pending = node_file_of(data_folder) + ".key";
  const Result<std::string> key = kept_key(pending);
  if (!key) return key.error();
  const Result<std::string> request = sign::make_node_request(*key);
  if (!request) return request.error();

  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  LinkTls nameless = tls;
  nameless.identity.clear();  // It becomes another one.
  const SchedulerChannel way = open_scheduler_channel(address, nameless, arguments);
  const std::unique_ptr<v1::NodeProtocol::Stub> stub = v1::NodeProtocol::NewStub(way.channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::nanoseconds(patience.ns));
  const auto stream = stub->Connect(&context);
  v1::AgentMessage message;
  message.mutable_hello()->set_node_name(node_name);
  message.mutable_hello()->set_nonce(sign::make_nonce());
  message.mutable_hello()->set_version(version);
  message.mutable_hello()->set_handshake(sign::kHandshake);
  v1::SchedulerMessage answer;
  bool answered = stream->Write(message) && stream->Read(&answer);
  if (answered && answer.has_challenge()) {
    message.mutable_enroll()->set_token(token);
    message.mutable_enroll()->set_request(*request);
    answered = stream->Write(message) && stream->Read(&answer);
  }
  if (!answered) return no_answer(way, address, stream->Finish());
  context.TryCancel();
  [[maybe_unused]] const grpc::Status over = stream->Finish();
  if (answer.has_refused())
    return Error{.code = ErrorCode::kUnauthenticated,
                 .message = "the scheduler at " + address + " refused: " + answer.refused().message()};
  if (!answer.has_enrolled())
    return Error{.code = ErrorCode::kUnavailable,
                 .message = "the scheduler at " + address + " knows no node tokens; upgrade it"};
  const Result<std::string> text =
      sign::node_file_text(*key, answer.enrolled().certificates(), answer.enrolled().order_key());
  if (!text) return text.error();
  if (const Result<Unit> written = write_private(node_file_of(data_folder), *text); !written) return written;
  ::unlink(pending.c_str());
  return Unit{};
}

bool NodeRenewal::is_due(int64_t now_s) {
  if (now_s < look_at_) return false;
  const Result<sign::NodeFile> file = sign::read_node_file(node_file_);
  look_at_ = now_s + kLookEvery_s;
  if (!file) return false;
  look_at_ = std::min(look_at_, std::max(file->renew_at(), now_s + 1));
  return now_s >= file->renew_at();
}

Result<std::string> NodeRenewal::request(int64_t now_s) {
  key_ = sign::make_node_key();
  const Result<sign::NodeFile> file = sign::read_node_file(node_file_);
  const int64_t tenth = file ? (file->expires_at - file->begins_at) / 10 : kTryAgain_s;
  look_at_ = now_s + std::clamp<int64_t>(tenth, 1, kTryAgain_s);
  return sign::make_node_request(key_);
}

Result<Unit> NodeRenewal::take(const v1::Enrolled& answer) {
  if (key_.empty())
    return Error{.code = ErrorCode::kInvalidArgument, .message = "no certificate was asked for"};
  std::string order_key = answer.order_key();
  if (order_key.empty()) {
    const Result<sign::NodeFile> before = sign::read_node_file(node_file_);
    if (!before) return before.error();
    order_key = before->order_keys;
  }
  const Result<std::string> text =
      sign::node_file_text(std::exchange(key_, {}), answer.certificates(), order_key);
  if (!text) return text.error();
  look_at_ = 0;
  return write_private(node_file_, *text);
}

Result<bool> NodeRenewal::take_order_keys(const std::string& keys) {
  const Result<sign::NodeFile> before = sign::read_node_file(node_file_);
  if (!before) return before.error();
  if (before->order_keys == keys) return false;
  std::ifstream in(node_file_, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const Result<std::string> changed = sign::with_order_keys(text, keys);
  if (!changed) return changed.error();
  if (const Result<Unit> written = write_private(node_file_, *changed); !written) return written.error();
  return true;
}

}  // namespace gpusched
