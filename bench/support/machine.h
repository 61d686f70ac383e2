#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpusched::bench {

/// Processor, cores, memory, kernel: one line.
std::string machine_line();

/// The name of the file system that holds `folder`, such as "ext4".
std::string file_system_of(const std::string& folder);

/// Nanoseconds of CLOCK_MONOTONIC.
int64_t now_ns();

/// Durations in nanoseconds.
class Samples {
 public:
  void add(int64_t ns) { values_.push_back(ns); }
  void add(const Samples& other) {
    values_.insert(values_.end(), other.values_.begin(), other.values_.end());
  }
  std::size_t count() const { return values_.size(); }
  /// The value that `share` (0..1) of all samples do not exceed, in milliseconds; 0 without samples.
  double percentile_ms(double share) const;

 private:
  mutable std::vector<int64_t> values_;
};

double median(std::vector<double> values);
double seconds_between(int64_t begin_ns, int64_t end_ns);

/// pwrite of 4 KiB and fdatasync, `count` times, over a file of `folder` that was filled with zeros before.
Samples measure_disk_sync(const std::string& folder, int count);

/// Prints "name   text" with the names in one column.
void print_line(const char* name, const std::string& text);
/// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string text_of(const char* format, ...);

/// Prints what every benchmark of the served system says first: machine, disk, durability.
void print_head(const std::string& folder);

}  // namespace gpusched::bench
