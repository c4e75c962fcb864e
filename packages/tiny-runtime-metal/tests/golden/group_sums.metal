#include <metal_stdlib>
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
using namespace metal;

[[max_total_threads_per_threadgroup(32)]] kernel void tiny_sums(device float* p0 [[buffer(0)]], device const float* p1 [[buffer(1)]], uint3 gid [[threadgroup_position_in_grid]], uint3 lid [[thread_position_in_threadgroup]]) {
  thread float m0[1];
  const int gidx0 = gid.x;
  const int lidx0 = lid.x;
  const bool v0 = (lidx0 == 0);
  m0[0] = 0x0.0p+0f;
  const int v1 = (gidx0 << 8);
  const int v2 = (lidx0 + v1);
  for (int i3 = 0; i3 < 8; i3++) {
    const float v4 = m0[0];
    const int v5 = (i3 << 5);
    const int v6 = (v2 + v5);
    const float v7 = p1[v6];
    const float v8 = (v4 + v7);
    m0[0] = v8;
  }
  const float v9 = m0[0];
  const float v10 = simd_shuffle_xor(v9, 1);
  const float v11 = (v9 + v10);
  const float v12 = simd_shuffle_xor(v11, 2);
  const float v13 = (v11 + v12);
  const float v14 = simd_shuffle_xor(v13, 4);
  const float v15 = (v13 + v14);
  const float v16 = simd_shuffle_xor(v15, 8);
  const float v17 = (v15 + v16);
  const float v18 = simd_shuffle_xor(v17, 16);
  const float v19 = (v17 + v18);
  if (v0) {
    p0[gidx0] = v19;
  }
}
