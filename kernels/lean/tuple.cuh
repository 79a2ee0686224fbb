// The storage, construction and get<I> of cute::tuple, with fewer templates for tuples that hold no value.
//
// Included by CuTe's own container/tuple.hpp in place of its definitions (tileforge/toolchain/lean.py), inside namespace
// cute. Holds what those promise: a tuple is a standard-layout type, elements without values take no room, those with
// values lie nested, the first outermost; get<I> of an element without values makes one. Members are laid out as in
// CUTLASS 4.2.0 and 4.5.0 to the byte: host and device, and the kernel's parameters, rely on it.
#pragma once

namespace cute {

template <class... T> struct tuple;

namespace lean {

// The elements from some position on: whether the first of them holds a value, whether any later one does.
template <bool First, bool Later, class... T> struct Values;
template <class Head, class... Tail> struct Holds {
  static constexpr bool first = !is_empty<Head>::value, later = (!is_empty<Tail>::value || ...);
};
template <class... T> using ValuesOf = Values<Holds<T...>::first, Holds<T...>::later, T...>;

template <class... T> struct Values<false, false, T...> {
  Values() = default;
  CUTE_HOST_DEVICE constexpr Values(T const &...) {}
};
template <class Head, class... Tail> struct Values<true, false, Head, Tail...> {
  Head first;
  CUTE_HOST_DEVICE constexpr Values() : first{} {}
  CUTE_HOST_DEVICE constexpr Values(Head const &head, Tail const &...) : first{head} {}
};
template <class Head, class... Tail> struct Values<false, true, Head, Tail...> {
  ValuesOf<Tail...> later;
  CUTE_HOST_DEVICE constexpr Values() : later{} {}
  CUTE_HOST_DEVICE constexpr Values(Head const &, Tail const &...tail) : later{tail...} {}
};
template <class Head, class... Tail> struct Values<true, true, Head, Tail...> {
  Head first;
  ValuesOf<Tail...> later;
  CUTE_HOST_DEVICE constexpr Values() : first{}, later{} {}
  CUTE_HOST_DEVICE constexpr Values(Head const &head, Tail const &...tail) : first{head}, later{tail...} {}
};

// The value of element I; Result is a reference of the kind of `values`.
template <class Result, size_t I, class V> CUTE_HOST_DEVICE constexpr Result value(V &&values) noexcept {
  if constexpr (I == 0) {
    return static_cast<V &&>(values).first;
  } else {
    return value<Result, I - 1>(static_cast<V &&>(values).later);
  }
  CUTE_GCC_UNREACHABLE;
}

}  // namespace lean

template <class... T> struct tuple : lean::ValuesOf<T...> {
  tuple() = default;
  CUTE_HOST_DEVICE constexpr tuple(T const &...t) : lean::ValuesOf<T...>(t...) {}
};
template <> struct tuple<> {};

template <class... T> CUTE_HOST_DEVICE constexpr tuple<T...> make_tuple(T const &...t) {
  if constexpr ((is_empty<T>::value && ...)) {
    return {};
  } else {
    return {t...};
  }
  CUTE_GCC_UNREACHABLE;
}

// decltype(auto) and not the type: an index out of range must not end the search for another get.
#define TF_LEAN_GET(QUALIFIER)                                                                       \
  template <size_t I, class... T>                                                                    \
  CUTE_HOST_DEVICE constexpr decltype(auto) get(tuple<T...> QUALIFIER t) noexcept {                  \
    static_assert(I < sizeof...(T), "Index out of range");                                           \
    using Element = tuple_element_t<I, tuple<T...>>;                                                 \
    if constexpr (is_empty<Element>::value) {                                                        \
      return Element{};                                                                              \
    } else {                                                                                         \
      return lean::value<Element QUALIFIER, I>(static_cast<tuple<T...> QUALIFIER>(t));               \
    }                                                                                                \
    CUTE_GCC_UNREACHABLE;                                                                            \
  }
TF_LEAN_GET(const &)
TF_LEAN_GET(&)
TF_LEAN_GET(&&)
#undef TF_LEAN_GET

}  // namespace cute
