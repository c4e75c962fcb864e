#include <metal_stdlib>
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
using namespace metal;

[[max_total_threads_per_threadgroup(32)]] kernel void tiny_symbolic(device float* p0 [[buffer(0)]], device const float* p1 [[buffer(1)]], constant long* integers [[buffer(2)]], uint3 gid [[threadgroup_position_in_grid]], uint3 lid [[thread_position_in_threadgroup]]) {
  const long n0 = integers[0];
  const int lidx0 = lid.x;
  const int v0 = (((int)n0) + 31);
  const int v1 = (int)(v0 >> 5);
  const int gidx0 = gid.x;
  const int v2 = (gidx0 << 5);
  const int v3 = (lidx0 + v2);
  const bool v4 = (v3 < ((int)n0));
  const int v5 = (v4 ? v3 : 0);
  const float v6 = p1[v5];
  const float v7 = (v4 ? v6 : 0x0.0p+0f);
  const float v8 = (float)((int)n0);
  const float v9 = (v7 * v8);
  if (v4) {
    p0[v3] = v9;
  }
}
