#pragma once

#include "base/ids.h"
#include "gpusched/v1/node.pb.h"
#include "model/types.h"

/// Values of the agents' protocol as the engine knows them, and back.
namespace gpusched::hub {

AttemptKey from_wire(const v1::AttemptKey& key);
v1::AttemptKey to_wire(const AttemptKey& key);
/// A cause of a newer agent's is a lost shim; words are cut.
Outcome from_wire(const v1::Outcome& wire);
DeviceCondition from_wire(v1::DeviceCondition wire);

}  // namespace gpusched::hub
