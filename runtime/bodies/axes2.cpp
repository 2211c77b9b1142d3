constexpr int32_t axes = 2;
