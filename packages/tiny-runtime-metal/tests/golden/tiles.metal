#include <metal_stdlib>
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
using namespace metal;

[[max_total_threads_per_threadgroup(64)]] kernel void tiny_matmul(device float* p0 [[buffer(0)]], device const float* p1 [[buffer(1)]], device const float* p2 [[buffer(2)]], uint3 gid [[threadgroup_position_in_grid]], uint3 lid [[thread_position_in_threadgroup]]) {
  thread float m1[1];
  threadgroup float m0[64];
  const int lidx0 = lid.x;
  const int v0 = (lidx0 << 5);
  const int gidx1 = gid.y;
  const int v1 = (gidx1 << 3);
  const int v2 = (v0 + v1);
  const int lidx1 = lid.y;
  const int v3 = (v2 + lidx1);
  const int gidx0 = gid.x;
  const int v4 = (gidx0 << 8);
  const int v5 = (v3 + v4);
  m1[0] = 0x0.0p+0f;
  const int v6 = (lidx0 << 3);
  const int v7 = (v6 + lidx1);
  const int v8 = (v0 + lidx1);
  const int v9 = (v8 + v4);
  const int v10 = (v1 + lidx1);
  for (int i11 = 0; i11 < 4; i11++) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const int v12 = (i11 << 3);
    const int v13 = (v9 + v12);
    const float v14 = p1[v13];
    const int v15 = (i11 << 8);
    const int v16 = (v10 + v15);
    m0[v7] = v14;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i17 = 0; i17 < 8; i17++) {
      const int v18 = (v6 + i17);
      const float v19 = m0[v18];
      const int v20 = (i17 << 5);
      const int v21 = (v16 + v20);
      const float v22 = p2[v21];
      const float v23 = m1[0];
      const float v24 = fma(v19, v22, v23);
      m1[0] = v24;
    }
  }
  const float v25 = m1[0];
  p0[v5] = v25;
}
