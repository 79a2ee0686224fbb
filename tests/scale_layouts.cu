// Where CUTLASS's own layout functions, on the host, put scale factors. One question a line: "A" or "B", elements that
// share a scale, rows, K. The answer is one line: room of the whole layout in bytes, then the byte of every (row, block
// along K), row by row. test_scale_layouts.py compares that with what tileforge writes.
#include "cute/tensor.hpp"
#include "cutlass/detail/sm100_blockscaled_layout.hpp"

#include <cstdio>

template <int Vector> void answer(char operand, int rows, int k) {
  using Config = cutlass::detail::Sm1xxBlockScaledConfig<Vector>;
  const auto print = [&](auto layout) {
    std::printf("%d", int(cute::cosize(layout)));
    for (int row = 0; row < rows; ++row)
      for (int element = 0; element < k; element += Vector)
        std::printf(" %d", int(layout(cute::make_coord(row, element, 0))));
    std::printf("\n");
  };
  if (operand == 'A') print(Config::tile_atom_to_shape_SFA(cute::make_shape(rows, 64, k, 1)));
  else print(Config::tile_atom_to_shape_SFB(cute::make_shape(64, rows, k, 1)));
}

int main() {
  char operand;
  int vector, rows, k;
  while (std::scanf(" %c %d %d %d", &operand, &vector, &rows, &k) == 4) {
    if (vector == 16) answer<16>(operand, rows, k);
    else answer<32>(operand, rows, k);
  }
}
