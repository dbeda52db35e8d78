#pragma once

namespace lazyplug {

// Why a row of the table of ops says what it says, where several parts of the table do.
inline constexpr const char* kChecksLess = "its Meta kernel does not check all sizes";
inline constexpr const char* kOtherShapes = "its Meta kernel promises other shapes than the CPU returns";
inline constexpr const char* kOtherStrides = "its Meta kernel promises other strides than the CPU returns";
inline constexpr const char* kPlace = "where elements go is no shape";

} // namespace lazyplug
