#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "node/container/container_launch.h"

namespace gpusched {

/// Removes, once and in the background, what earlier boots and crashes left of containers: those of this data
/// folder whose attempt is over or forgotten, and records of images that no job needs any more.
class ContainerSweep {
 public:
  explicit ContainerSweep(const ContainerNode& node);
  ~ContainerSweep();
  ContainerSweep(const ContainerSweep&) = delete;
  ContainerSweep& operator=(const ContainerSweep&) = delete;

 private:
  void run() const;
  void remove_containers() const;
  void remove_old_pins() const;

  const ContainerNode node_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace gpusched
