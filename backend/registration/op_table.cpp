#include "backend/registration/op_table.h"

namespace lazyplug {

std::vector<OpRow> op_rows() {
  std::vector<OpRow> rows = elementwise_rows();
  for (const auto& more : {network_rows(), other_rows()}) {
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return rows;
}

} // namespace lazyplug
