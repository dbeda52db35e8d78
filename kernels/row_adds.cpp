#include "kernels/row_adds.h"

#include <algorithm>

#include "kernels/parallel.h"
#include "kernels/tile_loops.h"

namespace lazyplug::kernels {
namespace {

// Threads have rows of the table, and each looks where all that are added go.
template <typename T>
void run_any(const RowAdds<T>& adds) {
  const double num_elements = static_cast<double>(adds.num_rows + adds.count) * static_cast<double>(adds.row_length);
  const int64_t num_parts = threads_for(num_elements / (2 * at::internal::GRAIN_SIZE));
  parallel_for(num_parts, 1, [&](int64_t begin, int64_t end) {
    const auto row = [&](int64_t part) { return begin_of_part(adds.num_rows, part, num_parts); };
    loops<T>().add_rows(adds, row(begin), row(end));
  });
}

} // namespace

void run(const RowAdds<float>& adds) {
  run_any(adds);
}

void run(const RowAdds<double>& adds) {
  run_any(adds);
}

} // namespace lazyplug::kernels
