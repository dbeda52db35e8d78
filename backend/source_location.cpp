#include "backend/source_location.h"

#include <atomic>

namespace lazyplug {
namespace {
std::atomic<LocationFinder> location_finder{nullptr};
} // namespace

void set_location_finder(LocationFinder finder) {
  location_finder = finder;
}

const char* current_location() {
  const LocationFinder finder = location_finder;
  return finder ? finder() : nullptr;
}

} // namespace lazyplug
