// CuTe's layout algebra for layouts whose every shape and stride is a static int, computed on plain integers.
//
// CuTe computes it with tuples of types: one composition instantiates some hundred function templates, 20 ms and 5 MB of
// the compiler's front end, and a kernel asks for hundreds. Here each is one class and a loop over ints. The results
// are the very same types, so that the kernel is the same to the last instruction; tileforge/toolchain/lean.py puts
// the calls in front of CuTe's own definitions, which stay for whatever is not static.
//
// Follows the semantics of cute/layout.hpp and cute/underscore.hpp, 4.2.0 and 4.5.0. What CuTe would refuse or what is
// out of the ordinary (negative strides, other integer types) is `ok == false` and left to CuTe.
#pragma once

#include <cute/container/tuple.hpp>
#include <cute/numeric/integral_constant.hpp>

namespace cute {
template <class Shape, class Stride> struct Layout;
struct Underscore;
}  // namespace cute

namespace tf::lean {

using cute::C;
using cute::tuple;

// Leaves of a nested tuple of C<int>, in order; count is -1 for anything else.
template <class T> struct Leaves {
  static constexpr int count = -1;
};
template <int V> struct Leaves<C<V>> {
  static constexpr int count = 1;
  CUTE_HOST_DEVICE static constexpr void fill(int *out, int &n) { out[n++] = V; }
};
template <class... T> struct Leaves<tuple<T...>> {
  static constexpr int count = ((Leaves<T>::count > 0) && ...) && sizeof...(T) > 0 ? (0 + ... + Leaves<T>::count) : -1;
  CUTE_HOST_DEVICE static constexpr void fill(int *out, int &n) { (Leaves<T>::fill(out, n), ...); }
};

template <class Shape, class Stride>
inline constexpr bool is_plain = (Leaves<Shape>::count > 0) && Leaves<Shape>::count == Leaves<Stride>::count;

// Modes of a flat layout. N: room.
template <int N> struct Modes {
  bool ok = true;
  int n = 0;
  int shape[N] = {}, stride[N] = {};
};

template <class Shape, class Stride> CUTE_HOST_DEVICE constexpr auto modes() {
  Modes<Leaves<Shape>::count> out{};
  int n = 0;
  Leaves<Shape>::fill(out.shape, out.n);
  Leaves<Stride>::fill(out.stride, n);
  return out;
}

// detail::bw_coalesce. `keep_last` is coalesce_x: a last mode of size 1 counts as 2, so that its stride survives.
template <int N> CUTE_HOST_DEVICE constexpr Modes<N> coalesced(Modes<N> in, bool keep_last) {
  Modes<N> out{};  // filled from the back, so that the front is at N - out.n
  auto push = [&](int shape, int stride) {
    ++out.n;
    out.shape[N - out.n] = shape, out.stride[N - out.n] = stride;
  };
  const int last = in.n - 1;
  push(keep_last && in.shape[last] == 1 ? 2 : in.shape[last], in.stride[last]);
  for (int i = last - 1; i >= 0; --i) {
    int &shape = out.shape[N - out.n], &stride = out.stride[N - out.n];
    if (in.shape[i] == 1) continue;
    if (out.n == 1 && shape == 1) {
      shape = in.shape[i], stride = in.stride[i];
    } else if (in.shape[i] * in.stride[i] == stride) {
      shape *= in.shape[i], stride = in.stride[i];
    } else {
      push(in.shape[i], in.stride[i]);
    }
  }
  Modes<N> front{};
  front.n = out.n;
  for (int i = 0; i < out.n; ++i) {
    front.shape[i] = out.shape[N - out.n + i], front.stride[i] = out.stride[N - out.n + i];
  }
  if (front.n == 1 && front.shape[0] == 1) front.stride[0] = 0;
  return front;
}

// The Layout of `Source::value`, a Modes: one mode is not wrapped in a tuple.
template <class Source, class Index = cute::make_index_sequence<Source::value.n>> struct LayoutOf;
template <class Source, size_t... I> struct LayoutOf<Source, cute::index_sequence<I...>> {
  using Shape = tuple<C<Source::value.shape[I]>...>;
  using Stride = tuple<C<Source::value.stride[I]>...>;
  using type = cute::Layout<Shape, Stride>;
};
template <class Source, size_t I> struct LayoutOf<Source, cute::index_sequence<I>> {
  using Shape = C<Source::value.shape[I]>;
  using Stride = C<Source::value.stride[I]>;
  using type = cute::Layout<Shape, Stride>;
};

struct Unknown {
  static constexpr bool ok = false;
};

// coalesce(layout) and detail::coalesce_x(layout).
template <class Shape, class Stride, bool KeepLast, bool = is_plain<Shape, Stride>> struct Coalesce : Unknown {};
template <class Shape, class Stride, bool KeepLast> struct Coalesce<Shape, Stride, KeepLast, true> {
  static constexpr auto value = coalesced(modes<Shape, Stride>(), KeepLast);
  static constexpr bool ok = true;
  using type = typename LayoutOf<Coalesce>::type;
};

CUTE_HOST_DEVICE constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

// The general case of detail::composition_impl: a flat coalesced left side and one mode on the right.
template <int N> CUTE_HOST_DEVICE constexpr Modes<N> composed(Modes<N> const &left, int shape, int stride) {
  Modes<N> out{};
  if (stride == 0 || left.n == 1) {
    out.n = 1, out.shape[0] = shape, out.stride[0] = stride == 0 ? 0 : stride * left.stride[0];
    return out;
  }
  if (stride < 0 || shape < 1) return out.ok = false, out;
  for (int i = 0; i < left.n - 1; ++i) {
    if (left.shape[i] < 1) return out.ok = false, out;
    if (stride % left.shape[i] != 0 && stride >= left.shape[i]) return out.ok = false, out;
    const int next_shape = ceil_div(left.shape[i], stride), next_stride = ceil_div(stride, left.shape[i]);
    if (next_shape != 1 && shape != 1) {
      const int taken = next_shape < shape ? next_shape : shape;
      if (shape % taken != 0) return out.ok = false, out;
      out.shape[out.n] = taken, out.stride[out.n++] = stride * left.stride[i];
      shape /= taken;
    }
    stride = next_stride;
  }
  if (out.n == 0 || shape != 1) out.shape[out.n] = shape, out.stride[out.n++] = stride * left.stride[left.n - 1];
  return out;
}

// composition(left, right), the left side given as the Coalesce<..., true> that it starts from.
template <class Left, class Shape, class Stride> struct ComposeMode : Unknown {};
template <class Left, int S, int D> struct ComposeMode<Left, C<S>, C<D>> {
  static constexpr auto value = composed(Left::value, S, D);
  static constexpr bool ok = value.ok;
  using Layout = LayoutOf<ComposeMode>;
  using ShapeOf = typename Layout::Shape;
  using StrideOf = typename Layout::Stride;
};
template <class Left, class... S, class... D> struct ComposeMode<Left, tuple<S...>, tuple<D...>> {
  static constexpr bool ok = (ComposeMode<Left, S, D>::ok && ...);
  using ShapeOf = tuple<typename ComposeMode<Left, S, D>::ShapeOf...>;
  using StrideOf = tuple<typename ComposeMode<Left, S, D>::StrideOf...>;
};

template <class L, class R, bool Ok> struct ComposeLayout : Unknown {};
template <class L, class R> struct ComposeLayout<L, R, true> {
  static constexpr bool ok = true;
  using type = cute::Layout<typename R::ShapeOf, typename R::StrideOf>;
};
template <class LShape, class LStride, class RShape, class RStride,
          bool = is_plain<LShape, LStride> && is_plain<RShape, RStride>>
struct Compose : Unknown {};
template <class LShape, class LStride, class RShape, class RStride>
struct Compose<LShape, LStride, RShape, RStride, true>
    : ComposeLayout<LShape, ComposeMode<Coalesce<LShape, LStride, true>, RShape, RStride>,
                    ComposeMode<Coalesce<LShape, LStride, true>, RShape, RStride>::ok> {};

// complement(layout, cotarget), for a cotarget that is one int or a flat tuple of them.
template <int N, int M> CUTE_HOST_DEVICE constexpr Modes<N + 1> complemented(Modes<N> in, const int (&target)[M]) {
  for (int i = 0; i < in.n; ++i) in.shape[i] = in.stride[i] == 0 ? 1 : in.shape[i];  // filter_zeros
  in = coalesced(in, false);
  Modes<N + 1> out{};
  int rest = 1;
  if (in.n == 1 && in.stride[0] == 0) {
    for (int t : target) rest *= t;
    out.n = 1, out.shape[0] = rest, out.stride[0] = rest == 1 ? 0 : 1;
    return out;
  }
  int stride = 1;
  for (int done = 0; done < N && in.n > 0; ++done) {
    int least = 0;
    for (int i = 1; i < in.n; ++i) least = in.stride[i] < in.stride[least] ? i : least;
    if (in.stride[least] < stride || in.shape[least] < 1) return out.ok = false, out;
    out.shape[out.n] = in.stride[least] / stride, out.stride[out.n++] = stride;
    stride = in.stride[least] * in.shape[least];
    --in.n;
    for (int i = least; i < in.n; ++i) in.shape[i] = in.shape[i + 1], in.stride[i] = in.stride[i + 1];
  }
  int divisor = stride;
  for (int t : target) {
    if (t < 1) return out.ok = false, out;
    rest *= ceil_div(t, divisor);
    divisor = ceil_div(divisor, t);
  }
  out.shape[out.n] = rest, out.stride[out.n++] = stride;
  return coalesced(out, false);
}

template <class T> struct Target;
template <int V> struct Target<C<V>> {
  static constexpr int value[] = {V};
};
template <int... V> struct Target<tuple<C<V>...>> {
  static constexpr int value[] = {V...};
};
template <class T> struct IsTarget {
  static constexpr bool value = false;
};
template <int V> struct IsTarget<C<V>> {
  static constexpr bool value = true;
};
template <int V, int... W> struct IsTarget<tuple<C<V>, C<W>...>> {
  static constexpr bool value = true;
};

template <class Self, bool Ok> struct ComplementLayout : Unknown {};
template <class Self> struct ComplementLayout<Self, true> {
  static constexpr bool ok = true;
  using type = typename LayoutOf<Self>::type;
};
template <class Shape, class Stride, class T> struct ComplementModes {
  static constexpr auto value = complemented(modes<Shape, Stride>(), Target<T>::value);
};
template <class Shape, class Stride, class T, bool = is_plain<Shape, Stride> && IsTarget<T>::value>
struct Complement : Unknown {};
template <class Shape, class Stride, class T>
struct Complement<Shape, Stride, T, true>
    : ComplementLayout<ComplementModes<Shape, Stride, T>, ComplementModes<Shape, Stride, T>::value.ok> {};

// slice(a, b) for a `b` without values: the elements that are paired with an Underscore, flat.
template <class... T> struct Cat;
template <> struct Cat<> {
  using type = tuple<>;
};
template <class... T> struct Cat<tuple<T...>> {
  using type = tuple<T...>;
};
template <class... T, class... U, class... Rest> struct Cat<tuple<T...>, tuple<U...>, Rest...> {
  using type = typename Cat<tuple<T..., U...>, Rest...>::type;
};
template <class A, class B> struct Lift {
  using type = tuple<>;
};
template <class B> struct Lift<cute::Underscore, B> {
  using type = tuple<B>;
};
template <class... A, class... B> struct Lift<tuple<A...>, tuple<B...>> {
  using type = typename Cat<typename Lift<A, B>::type...>::type;
};
template <class A, class B, bool Ok> struct SliceIf : Unknown {};
template <class A, class B> struct SliceIf<A, B, true> {
  static constexpr bool ok = true;
  using type = typename Lift<A, B>::type;
};
template <class A, class B> struct Slice : Unknown {};
template <class... A, class... B>
struct Slice<tuple<A...>, tuple<B...>>
    : SliceIf<tuple<A...>, tuple<B...>, sizeof...(A) == sizeof...(B) && (Leaves<tuple<B...>>::count > 0)> {};

}  // namespace tf::lean
