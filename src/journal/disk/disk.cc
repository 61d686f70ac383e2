#include "journal/disk/disk.h"

#include <algorithm>
#include <array>

namespace gpusched {

std::string folder_above(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Result<Unit> write_all(DiskFile& file, uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const Result<std::size_t> written = file.pwrite(offset, bytes);
    if (!written) return written.error();
    CHECK(*written > 0);
    CHECK(*written <= bytes.size());
    offset += *written;
    bytes.remove_prefix(*written);
  }
  return Unit{};
}

Result<Unit> write_zeros(DiskFile& file, uint64_t offset, uint64_t end) {
  static constexpr std::array<char, 65536> kZeros{};
  while (offset < end) {
    const auto size = static_cast<std::size_t>(std::min<uint64_t>(kZeros.size(), end - offset));
    const Result<Unit> written = write_all(file, offset, {kZeros.data(), size});
    if (!written) return written;
    offset += size;
  }
  return Unit{};
}

Result<Unit> read_exact(DiskFile& file, uint64_t offset, char* out, std::size_t size) {
  while (size > 0) {
    const Result<std::size_t> got = file.pread(offset, out, size);
    if (!got) return got.error();
    if (*got == 0) return Error{.code = ErrorCode::kCorrupt, .message = "the file has become shorter"};
    offset += *got;
    out += *got;
    size -= *got;
  }
  return Unit{};
}

Result<Unit> replace_file(Disk& disk, const std::string& dir, const std::string& name,
                          std::string_view bytes) {
  const std::string path = dir + "/" + name;
  const std::string temporary = path + ".tmp";
  {
    Result<std::unique_ptr<DiskFile>> file = disk.open(temporary, DiskOpen::kCreate);
    if (!file) return file.error();
    const Result<Unit> written = write_all(**file, 0, bytes);
    if (!written) return written;
    const Result<Unit> synced = (*file)->fdatasync();
    if (!synced) return synced;
  }
  const Result<Unit> renamed = disk.rename(temporary, path);
  if (!renamed) return renamed;
  return disk.sync_dir(dir);
}

Result<std::string> read_file(Disk& disk, const std::string& path, uint64_t bytes_max) {
  Result<std::unique_ptr<DiskFile>> file = disk.open(path, DiskOpen::kRead);
  if (!file) return file.error();
  const Result<uint64_t> size = (*file)->size();
  if (!size) return size.error();
  if (*size > bytes_max) {
    return Error{
        .code = ErrorCode::kTooLarge,
        .message = path + " has " + std::to_string(*size) + " bytes, more than such a file can have"};
  }
  std::string bytes(*size, '\0');
  const Result<Unit> read = read_exact(**file, 0, bytes.data(), bytes.size());
  if (!read) return read.error();
  return bytes;
}

}  // namespace gpusched
