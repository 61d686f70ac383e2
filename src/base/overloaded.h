#pragma once

#include <concepts>

namespace gpusched {

/// A visitor of a variant that is made of one callable for each alternative. Without a generic one among them
/// an alternative that is added to the variant does not compile until every such visitor says what it does
/// with it.
template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

/// The case of an `Overloaded` that does nothing, for exactly these alternatives.
template <typename... Alternatives>
struct Ignores {
  template <typename Alternative>
    requires(std::same_as<Alternative, Alternatives> || ...)
  void operator()(const Alternative& /*ignored*/) const {}
};

}  // namespace gpusched
