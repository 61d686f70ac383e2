// Runs a fuzzer's function on its committed inputs and on changes of them, the same ones on every run,
// without libFuzzer and its instrumentation: what `make test` has of the fuzzers.
//
//   build/fuzzers/NAME_fuzz COUNT FOUND [FOLDER]
//
// COUNT is the number of changed inputs, FOLDER holds the committed ones. An input that ends the process is
// left in the file FOUND.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

constexpr std::size_t kBytesMax = 65'536;
constexpr uint64_t kChangesMax = 8;
constexpr uint64_t kPieceMax = 64;

/// The input that runs, and where the handler of signals leaves it.
const Bytes* running = nullptr;
const char* found_path = nullptr;

void keep_input(int number) {
  const int file = ::open(found_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const bool kept = file >= 0 && running != nullptr && ::write(file, running->data(), running->size()) >= 0;
  static constexpr char kKept[] = "the input that ended the process was kept\n";
  if (kept && ::write(STDERR_FILENO, kKept, sizeof kKept - 1) < 0) ::_exit(1);
  ::signal(number, SIG_DFL);
  ::raise(number);
}

void run(const Bytes& input) {
  running = &input;
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

std::vector<Bytes> read_folder(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());  // The order of a folder differs from machine to machine.
  std::vector<Bytes> inputs;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

/// Makes inputs from others. Draws whole numbers only, so that every machine makes the same.
class Changes {
 public:
  explicit Changes(std::vector<Bytes> from) : from_(std::move(from)) {}

  Bytes next() {
    Bytes input = from_.empty() ? Bytes{} : from_[below(from_.size())];
    const uint64_t count = 1 + below(kChangesMax);
    for (uint64_t i = 0; i < count; ++i) change(input);
    if (input.size() > kBytesMax) input.resize(kBytesMax);
    return input;
  }

 private:
  uint64_t below(uint64_t limit) { return draw_() % limit; }
  std::ptrdiff_t place(const Bytes& input) { return static_cast<std::ptrdiff_t>(below(input.size() + 1)); }

  void change(Bytes& input) {
    const std::ptrdiff_t at = place(input);
    const std::ptrdiff_t rest = std::ssize(input) - at;
    const auto length = std::min<std::ptrdiff_t>(rest, static_cast<std::ptrdiff_t>(1 + below(kPieceMax)));
    switch (below(5)) {
      case 0:  // A bit.
        if (rest > 0) input[static_cast<std::size_t>(at)] ^= static_cast<uint8_t>(1U << below(8));
        break;
      case 1:  // Bytes that come from nowhere.
        for (uint64_t i = 1 + below(kPieceMax); i > 0; --i) {
          input.insert(input.begin() + at, static_cast<uint8_t>(below(256)));
        }
        break;
      case 2:
        input.erase(input.begin() + at, input.begin() + at + length);
        break;
      case 3: {  // A piece twice.
        const Bytes piece(input.begin() + at, input.begin() + at + length);
        input.insert(input.begin() + place(input), piece.begin(), piece.end());
        break;
      }
      default: {  // Another one's end.
        if (from_.empty()) break;
        const Bytes& other = from_[below(from_.size())];
        input.resize(static_cast<std::size_t>(at));
        input.insert(input.end(), other.begin() + place(other), other.end());
      }
    }
  }

  std::vector<Bytes> from_;
  std::mt19937_64 draw_{1};
};

}  // namespace

int main(int count, char** words) {
  if (count < 3) {
    std::fprintf(stderr, "usage: %s COUNT FOUND [FOLDER]\n", words[0]);
    return 2;
  }
  found_path = words[2];
  for (const int number : std::array{SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) ::signal(number, keep_input);
  std::vector<Bytes> committed;
  if (count > 3) committed = read_folder(words[3]);
  for (const Bytes& input : committed) run(input);
  const unsigned long long changed = std::strtoull(words[1], nullptr, 10);
  std::size_t runs = committed.size();
  Changes changes(std::move(committed));
  for (unsigned long long i = 0; i < changed; ++i, ++runs) {
    const Bytes input = changes.next();
    run(input);
  }
  std::printf("stat::number_of_executed_units: %zu\n", runs);
  return 0;
}
