constexpr bool largest = false;
