constexpr int32_t axes = 3;
