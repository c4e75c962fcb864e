#include <metal_stdlib>
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
using namespace metal;

[[max_total_threads_per_threadgroup(16)]] kernel void tiny_transpose(device float* p0 [[buffer(0)]], device const float* p1 [[buffer(1)]], uint3 gid [[threadgroup_position_in_grid]], uint3 lid [[thread_position_in_threadgroup]]) {
  const int gidx0 = gid.x;
  const int v0 = (gidx0 * 480);
  const int gidx1 = gid.y;
  const int v1 = (gidx1 << 1);
  const int v2 = (v0 + v1);
  const int lidx0 = lid.x;
  const int v3 = (lidx0 * 30);
  const int v4 = (v2 + v3);
  const int v5 = (gidx0 << 4);
  const int v6 = (v5 + lidx0);
  const bool v7 = (v6 < 20);
  const int v8 = (gidx1 * 40);
  const int v9 = (v5 + v8);
  const int v10 = (v9 + lidx0);
  const int v11 = (v7 ? v10 : 0);
  const float v12 = p1[v11];
  const float v13 = (v7 ? v12 : 0x0.0p+0f);
  const int v14 = (v4 + 1);
  const int v15 = (v10 + 20);
  const int v16 = (v7 ? v15 : 0);
  const float v17 = p1[v16];
  const float v18 = (v7 ? v17 : 0x0.0p+0f);
  if (v7) {
    p0[v4] = v13;
    p0[v14] = v18;
  }
}
