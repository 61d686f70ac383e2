#pragma once

// Before all else in what includes protobuf's headers and is compiled for the thread sanitizer. With this
// macro protobuf gives its maps two members more, which the library as installed does not know: their objects
// would have two layouts. The standard library asks first, and keeps its own word for it;
// ours is GPUSCHED_THREAD_SANITIZER.
#include <cstddef>
#undef __SANITIZE_THREAD__
#define GPUSCHED_THREAD_SANITIZER 1
