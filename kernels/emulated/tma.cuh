// TMA of 4-bit elements by a GPU whose TMA has no such format: the same boxes, said in bytes.
//
// Packed elements: dimension 0 of tensor and box halved, coordinate 0 halved; strides, swizzle and what arrives in
// shared memory are the same. Elements that SM120 unpacks to bytes ("unpacksmem"): a box is 128 elements of each row,
// which are 64 packed bytes, in a row of 128 bytes of shared memory. Here dimension 0 is those 64 bytes, the box reaches
// 64 bytes beyond them and TMA fills those with zeros; dimension 2, which a grouped GEMM leaves at 1, steps through K.
// device.cuh says where ldmatrix then looks for them. The barrier counts the whole box, where SM120 counts packed bytes.
#pragma once

#include "cute/arch/copy_sm90_desc.hpp"
#include "cute/tensor_impl.hpp"
#include "cutlass/numeric_types.h"

#include <cstdint>

namespace tf::emulated {

template <class T> constexpr bool unpacked = cute::is_same_v<T, cutlass::detail::float_e2m1_unpacksmem_t>;
template <class T> constexpr bool packed = !unpacked<T> && cute::sizeof_bits_v<T> == 4;
constexpr uint32_t unpacked_box = 128;  // elements: CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B knows no other

// Shapes and byte strides of a descriptor. Host and device, all integer types.
template <class T, class Shape, class Strides> CUTE_HOST_DEVICE void in_bytes(Shape &shape, Strides &strides) {
  if constexpr (unpacked<T>) {
    shape[2] = (shape[0] + unpacked_box - 1) / unpacked_box;
    strides[2] = unpacked_box / 2;
    shape[0] = unpacked_box / 2;
  } else if constexpr (packed<T>) {
    shape[0] /= 2;
  }
}
template <class T, class Box> void box_in_bytes(Box &box) {
  if constexpr (packed<T>) box[0] /= 2;
}

// A load with one coordinate more than its descriptor has dimensions is no load, and a rank cannot be replaced later.
template <class T> constexpr uint32_t rank(int dimensions) { return unpacked<T> && dimensions < 3 ? 3 : dimensions; }

template <class T> CUtensorMapDataType data_type() {
  if constexpr (unpacked<T> || packed<T>) {
    return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  } else {
    return cute::TMA::to_CUtensorMapDataType<T>();
  }
}

// Bits that arrive per element of shared memory, as the barrier counts them.
template <class T, class Element>
constexpr int arriving_bits = unpacked<T> ? 8 : static_cast<int>(cute::sizeof_bits_v<Element>);

// A load's coordinate. `Smem` is what is written; NumBits the bits of the box as CuTe counts them.
template <class Smem, class NumBits, class Coordinate>
CUTE_HOST_DEVICE constexpr auto coordinate(Coordinate const &c) {
  if constexpr (cute::sizeof_bits_v<typename Smem::value_type> == 4) {
    return cute::replace<0>(c, cute::get<0>(c) / 2);
  } else if constexpr (cute::sizeof_bits_v<typename Smem::value_type> == 8 &&
                       NumBits::value * 2 == decltype(cute::size(cute::declval<Smem>()))::value * 8) {
    return cute::replace<2>(cute::replace<0>(c, 0), cute::get<0>(c) / int(unpacked_box));
  } else {
    return c;
  }
}

}  // namespace tf::emulated
