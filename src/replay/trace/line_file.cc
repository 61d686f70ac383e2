#include "replay/trace/line_file.h"

#include <zlib.h>

#include <cerrno>
#include <cstring>

namespace gpusched::replay {

void LineFile::Close::operator()(void* file) const { gzclose_r(static_cast<gzFile>(file)); }

Result<LineFile> LineFile::open(const std::string& path) {
  errno = 0;
  gzFile file = gzopen(path.c_str(), "rbe");
  if (file == nullptr) {
    const int error = errno;
    return Error{.code = error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                 .message = "cannot open " + path + ": " + std::strerror(error == 0 ? ENOMEM : error)};
  }
  gzbuffer(file, 1u << 17);
  return LineFile(path, file);
}

Error LineFile::broken(std::string_view what) const {
  return {.code = ErrorCode::kCorrupt,
          .message = path_ + ":" + std::to_string(number_) + ": " + std::string(what)};
}

Result<bool> LineFile::next(std::string_view& line) {
  gzFile file = static_cast<gzFile>(file_.get());
  ++number_;
  buffer_.resize(kTraceLineBytesMax);
  const char* got = gzgets(file, buffer_.data(), static_cast<int>(buffer_.size()));
  int code = Z_OK;
  const char* message = gzerror(file, &code);
  if (code != Z_OK && code != Z_STREAM_END) {
    return broken(code == Z_ERRNO
                      ? "cannot be read; copy the file again"
                      : std::string("the compressed file is damaged (") + message + "); copy it again");
  }
  if (got == nullptr) return false;
  const std::size_t size = std::strlen(got);
  if (size == 0 || (got[size - 1] != '\n' && !gzeof(file))) {
    return broken(size + 1 >= buffer_.size()
                      ? "the line is longer than 65,535 bytes; check that this is a text file"
                      : "a zero byte; check that this is a text file");
  }
  line = std::string_view(got, size);
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  return true;
}

}  // namespace gpusched::replay
