#pragma once

#include "model/state.h"

namespace gpusched {

/// Keeps in the history of the promise's job that it goes on elsewhere, or that others do for it.
void note_move(State& state, const Promise& promise);

}  // namespace gpusched
