#include <metal_stdlib>
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
using namespace metal;

[[max_total_threads_per_threadgroup(8)]] kernel void tiny_convolution(device float* p0 [[buffer(0)]], device const float* p1 [[buffer(1)]], device const float* p2 [[buffer(2)]], uint3 gid [[threadgroup_position_in_grid]], uint3 lid [[thread_position_in_threadgroup]]) {
  thread float m0[1];
  const int lidx0 = lid.x;
  const int gidx0 = gid.x;
  const int v0 = (gidx0 << 6);
  const int v1 = (lidx0 + v0);
  const int gidx1 = gid.y;
  const int v2 = (gidx1 << 3);
  const int v3 = (v1 + v2);
  m0[0] = 0x0.0p+0f;
  const int v4 = (gidx1 * 10);
  const int v5 = (lidx0 + v4);
  const int v6 = (gidx0 * 27);
  for (int i7 = 0; i7 < 3; i7++) {
    const int v8 = (i7 * 100);
    const int v9 = (v5 + v8);
    const int v10 = (i7 * 9);
    const int v11 = (v6 + v10);
    for (int i12 = 0; i12 < 3; i12++) {
      const float v13 = m0[0];
      const int v14 = (i12 * 10);
      const int v15 = (v9 + v14);
      const int v16 = (v15 + 2);
      const float v17 = p1[v16];
      const int v18 = (i12 * 3);
      const int v19 = (v11 + v18);
      const int v20 = (v19 + 2);
      const float v21 = p2[v20];
      const float v22 = p1[v15];
      const float v23 = p2[v19];
      const int v24 = (v15 + 1);
      const float v25 = p1[v24];
      const int v26 = (v19 + 1);
      const float v27 = p2[v26];
      const float v28 = (v25 * v27);
      const float v29 = fma(v22, v23, v28);
      const float v30 = fma(v17, v21, v29);
      const float v31 = (v13 + v30);
      m0[0] = v31;
    }
  }
  const float v32 = m0[0];
  p0[v3] = v32;
}
