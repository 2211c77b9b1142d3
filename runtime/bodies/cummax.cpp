constexpr bool largest = true;
