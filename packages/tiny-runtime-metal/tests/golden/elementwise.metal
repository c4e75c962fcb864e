#include <metal_stdlib>
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
using namespace metal;

[[max_total_threads_per_threadgroup(32)]] kernel void tiny_elementwise(device float* p0 [[buffer(0)]], device const float* p1 [[buffer(1)]], device const float* p2 [[buffer(2)]], device const float* p3 [[buffer(3)]], uint3 gid [[threadgroup_position_in_grid]], uint3 lid [[thread_position_in_threadgroup]]) {
  const int lidx0 = lid.x;
  const int v0 = (lidx0 << 2);
  const int gidx0 = gid.x;
  const int v1 = (gidx0 << 7);
  const int v2 = (v0 + v1);
  const packed_float4 w3_0 = *(device const packed_float4*)(p1 + v2);
  const float v3 = w3_0[0];
  const float v4 = w3_0[1];
  const float v5 = w3_0[2];
  const float v6 = w3_0[3];
  const packed_float4 w7_0 = *(device const packed_float4*)(p2 + v2);
  const float v7 = w7_0[0];
  const float v8 = w7_0[1];
  const float v9 = w7_0[2];
  const float v10 = w7_0[3];
  const packed_float4 w11_0 = *(device const packed_float4*)(p3 + v2);
  const float v11 = w11_0[0];
  const float v12 = w11_0[1];
  const float v13 = w11_0[2];
  const float v14 = w11_0[3];
  const float v15 = fma(v3, v7, v11);
  const float v16 = fma(v4, v8, v12);
  const float v17 = fma(v5, v9, v13);
  const float v18 = fma(v6, v10, v14);
  const float v19 = (v15 > 0x0.0p+0f || v15 != v15 ? v15 : 0x0.0p+0f);
  const float v20 = (v16 > 0x0.0p+0f || v16 != v16 ? v16 : 0x0.0p+0f);
  const float v21 = (v17 > 0x0.0p+0f || v17 != v17 ? v17 : 0x0.0p+0f);
  const float v22 = (v18 > 0x0.0p+0f || v18 != v18 ? v18 : 0x0.0p+0f);
  *(device packed_float4*)(p0 + v2) = packed_float4(v19, v20, v21, v22);
}
