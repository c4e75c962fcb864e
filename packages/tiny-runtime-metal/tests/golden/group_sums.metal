#include <metal_stdlib>
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
using namespace metal;

[[max_total_threads_per_threadgroup(32)]] kernel void tiny_sums(device float* p0 [[buffer(0)]], device const float* p1 [[buffer(1)]], uint3 gid [[threadgroup_position_in_grid]], uint3 lid [[thread_position_in_threadgroup]]) {
  thread float m2[1];
  threadgroup float m0[32];
  thread float m1[1];
  const int gidx0 = gid.x;
  const int lidx0 = lid.x;
  const bool v0 = (lidx0 == 0);
  m2[0] = 0x0.0p+0f;
  m1[0] = 0x0.0p+0f;
  const int v1 = (gidx0 << 8);
  const int v2 = (lidx0 + v1);
  for (int i3 = 0; i3 < 8; i3++) {
    const float v4 = m1[0];
    const int v5 = (i3 << 5);
    const int v6 = (v2 + v5);
    const float v7 = p1[v6];
    const float v8 = (v4 + v7);
    m1[0] = v8;
  }
  const float v9 = m1[0];
  m0[lidx0] = v9;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i10 = 0; i10 < 32; i10++) {
    const float v11 = m2[0];
    const float v12 = m0[i10];
    const float v13 = (v11 + v12);
    m2[0] = v13;
  }
  const float v14 = m2[0];
  if (v0) {
    p0[gidx0] = v14;
  }
}
