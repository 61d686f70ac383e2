#pragma once

#include <string>
#include <vector>

#include "base/time.h"
#include "ops/doctor.h"

/// The findings of the scheduler's doctor about nodes' certificates.
namespace gpusched {

/// A node with a certificate, as `GET /v1/node-identities` tells of it.
struct NodeFacts {
  std::string node, state;
  Time since;       ///< Begin of its newest certificate.
  Time expires_at;  ///< End of its newest certificate.
};

/// Warns of nodes whose certificate has less than a quarter of its time left, or has expired: agents renew it
/// when a third is left. Nothing where no node has one.
std::vector<Finding> check_nodes(const std::vector<NodeFacts>& nodes, Time now);

}  // namespace gpusched
