#include <metal_stdlib>
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
using namespace metal;

[[max_total_threads_per_threadgroup(64)]] kernel void tiny_matmul(device float* p0 [[buffer(0)]], device const float* p1 [[buffer(1)]], device const float* p2 [[buffer(2)]], uint3 gid [[threadgroup_position_in_grid]], uint3 lid [[thread_position_in_threadgroup]]) {
  thread float m1[1];
  threadgroup float m0[128];
  thread float m2[1];
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
  const float v10 = p1[v9];
  const int v11 = (v1 + lidx1);
  m0[v7] = v10;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i12 = 0; i12 < 4; i12++) {
    const int v13 = ((-1) - i12);
    const int v14 = (v13 > (-3) ? v13 : (-3));
    const int v15 = (v14 * (-8));
    const int v16 = (v9 + v15);
    const float v17 = p1[v16];
    m2[0] = v17;
    const int v18 = (i12 & 1);
    const int v19 = (v18 << 6);
    const int v20 = (v6 + v19);
    const int v21 = (i12 << 8);
    const int v22 = (v11 + v21);
    for (int i23 = 0; i23 < 8; i23++) {
      const int v24 = (v20 + i23);
      const float v25 = m0[v24];
      const int v26 = (i23 << 5);
      const int v27 = (v22 + v26);
      const float v28 = p2[v27];
      const float v29 = m1[0];
      const float v30 = fma(v25, v28, v29);
      m1[0] = v30;
    }
    const int v31 = (i12 + 1);
    const int v32 = (v31 & 1);
    const int v33 = (v32 << 6);
    const int v34 = (v7 + v33);
    const float v35 = m2[0];
    m0[v34] = v35;
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  const float v36 = m1[0];
  p0[v5] = v36;
}
