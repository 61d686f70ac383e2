#include "api/doors/session/file_relay.h"

#include <array>
#include <charconv>
#include <optional>
#include <utility>

namespace gpusched::api {
namespace {

std::string octal(uint32_t number) {
  std::array<char, 16> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number, 8).ptr};
}

/// One thing is under way at a time: a read, or a write.
class FileRelay : public std::enable_shared_from_this<FileRelay> {
 public:
  FileRelay(SessionBackend& backend, RestCallPtr call, FileRequest request, int64_t bytes_max)
      : backend_(backend), call_(std::move(call)), request_(std::move(request)), bytes_max_(bytes_max) {}

  void read() {
    backend_.read_file(call_->caller(), request_, [self = shared_from_this()](Answer<FilePiece> piece) {
      if (!piece) return self->fail(piece.error());
      self->on_piece(std::move(*piece));
    });
  }

 private:
  void fail(const ApiError& error) {
    if (!stream_) return call_->fail(error);
    stream_->abort();  // Half a file must not look like a whole one.
  }

  /// Gives back the transfer that the node keeps open for us.
  void give_up() {
    if (over_ || request_.transfer == 0) return;
    request_.close = true;
    backend_.read_file(call_->caller(), request_, [](const Answer<FilePiece>&) {});
  }

  void on_piece(FilePiece piece) {
    request_.transfer = piece.transfer;
    request_.attempt = piece.attempt;
    over_ = piece.at_end;
    const int64_t size = std::max(piece.size, request_.offset + static_cast<int64_t>(piece.data.size()));
    if (size > bytes_max_) {
      give_up();
      return fail(
          {ErrorKind::kTooLarge,
           "the file has " + std::to_string(size) + " bytes, but at most " + std::to_string(bytes_max_) +
               " can be copied (api.copy_bytes_max); have the job write large results to shared storage"});
    }
    if (!stream_) {
      call_->note().line.unix_user = piece.unix_user;
      HttpResponse head{.content_type = "application/octet-stream"};
      head.headers.emplace_back("File-Size", std::to_string(piece.size));
      head.headers.emplace_back("File-Mode", octal(piece.mode));
      stream_ = call_->stream(std::move(head));
    }
    request_.offset += static_cast<int64_t>(piece.data.size());
    stream_->write(std::move(piece.data), [self = shared_from_this()](bool alive) {
      if (!alive) return self->give_up();
      if (self->over_) return self->stream_->finish();
      self->read();
    });
  }

  SessionBackend& backend_;
  RestCallPtr call_;
  FileRequest request_;
  const int64_t bytes_max_;
  std::optional<HttpStream> stream_;
  bool over_ = false;
};

}  // namespace

void relay_file(SessionBackend& backend, const RestCallPtr& call, FileRequest request, int64_t bytes_max) {
  std::make_shared<FileRelay>(backend, call, std::move(request), bytes_max)->read();
}

}  // namespace gpusched::api
