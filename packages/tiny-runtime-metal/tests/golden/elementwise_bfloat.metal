#include <metal_stdlib>
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
using namespace metal;

[[max_total_threads_per_threadgroup(32)]] kernel void tiny_elementwise(device bfloat* p0 [[buffer(0)]], device const bfloat* p1 [[buffer(1)]], device const bfloat* p2 [[buffer(2)]], device const bfloat* p3 [[buffer(3)]], uint3 gid [[threadgroup_position_in_grid]], uint3 lid [[thread_position_in_threadgroup]]) {
  const int lidx0 = lid.x;
  const int v0 = (lidx0 << 2);
  const int gidx0 = gid.x;
  const int v1 = (gidx0 << 7);
  const int v2 = (v0 + v1);
  const packed_bfloat4 w3_0 = *(device const packed_bfloat4*)(p1 + v2);
  const bfloat v3 = w3_0[0];
  const bfloat v4 = w3_0[1];
  const bfloat v5 = w3_0[2];
  const bfloat v6 = w3_0[3];
  const packed_bfloat4 w7_0 = *(device const packed_bfloat4*)(p2 + v2);
  const bfloat v7 = w7_0[0];
  const bfloat v8 = w7_0[1];
  const bfloat v9 = w7_0[2];
  const bfloat v10 = w7_0[3];
  const bfloat v11 = (v3 * v7);
  const bfloat v12 = (v4 * v8);
  const bfloat v13 = (v5 * v9);
  const bfloat v14 = (v6 * v10);
  const packed_bfloat4 w15_0 = *(device const packed_bfloat4*)(p3 + v2);
  const bfloat v15 = w15_0[0];
  const bfloat v16 = w15_0[1];
  const bfloat v17 = w15_0[2];
  const bfloat v18 = w15_0[3];
  const bfloat v19 = (v11 + v15);
  const bfloat v20 = (v12 + v16);
  const bfloat v21 = (v13 + v17);
  const bfloat v22 = (v14 + v18);
  const bfloat v23 = (v19 > ((bfloat)0x0.0p+0f) || v19 != v19 ? v19 : ((bfloat)0x0.0p+0f));
  const bfloat v24 = (v20 > ((bfloat)0x0.0p+0f) || v20 != v20 ? v20 : ((bfloat)0x0.0p+0f));
  const bfloat v25 = (v21 > ((bfloat)0x0.0p+0f) || v21 != v21 ? v21 : ((bfloat)0x0.0p+0f));
  const bfloat v26 = (v22 > ((bfloat)0x0.0p+0f) || v22 != v22 ? v22 : ((bfloat)0x0.0p+0f));
  *(device packed_bfloat4*)(p0 + v2) = packed_bfloat4(v23, v24, v25, v26);
}
