#include <metal_stdlib>
#include <metal_simdgroup_matrix>
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
using namespace metal;
static void multiply_bfloat_float(thread float* d0, thread float* d1, bfloat a0, bfloat a1, bfloat b0, bfloat b1, float c0, float c1) {
  simdgroup_matrix<bfloat, 8, 8> a, b;
  simdgroup_matrix<float, 8, 8> c;
  a.thread_elements() = vec<bfloat, 2>(a0, a1);
  b.thread_elements() = vec<bfloat, 2>(b0, b1);
  c.thread_elements() = vec<float, 2>(c0, c1);
  simdgroup_multiply_accumulate(c, a, b, c);
  *d0 = c.thread_elements()[0];
  *d1 = c.thread_elements()[1];
}

[[max_total_threads_per_threadgroup(32)]] kernel void tiny_matmul(device float* p0 [[buffer(0)]], device const bfloat* p1 [[buffer(1)]], device const bfloat* p2 [[buffer(2)]], uint3 gid [[threadgroup_position_in_grid]], uint3 lid [[thread_position_in_threadgroup]]) {
  thread float m0[2];
  const int lidx0 = lid.x;
  const int v0 = (lidx0 & 1);
  const int v1 = (v0 << 1);
  const int v2 = (int)(lidx0 >> 4);
  const int v3 = (v2 << 6);
  const int v4 = (v1 + v3);
  const int gidx1 = gid.y;
  const int v5 = (gidx1 << 3);
  const int v6 = (v4 + v5);
  const int v7 = (int)(lidx0 >> 1);
  const int v8 = (v7 & 3);
  const int v9 = (v8 << 4);
  const int v10 = (v6 + v9);
  const int gidx0 = gid.x;
  const int v11 = (gidx0 << 7);
  const int v12 = (v10 + v11);
  const int v13 = (int)(lidx0 >> 3);
  const int v14 = (v13 & 1);
  const int v15 = (v14 << 2);
  const int v16 = (v12 + v15);
  *(thread packed_float2*)(m0 + (0 * 2)) = packed_float2(0x0.0p+0f, 0x0.0p+0f);
  const int v17 = (v2 << 8);
  const int v18 = (v1 + v17);
  const int v19 = (v8 << 6);
  const int v20 = (v18 + v19);
  const int v21 = (gidx0 << 9);
  const int v22 = (v20 + v21);
  const int v23 = (v22 + v15);
  const int v24 = (v10 + v15);
  for (int i25 = 0; i25 < 8; i25++) {
    const int v26 = (i25 << 3);
    const int v27 = (v23 + v26);
    const bfloat v28 = p1[v27];
    const int v29 = (v27 + 1);
    const bfloat v30 = p1[v29];
    const int v31 = (i25 << 7);
    const int v32 = (v24 + v31);
    const bfloat v33 = p2[v32];
    const int v34 = (v32 + 1);
    const bfloat v35 = p2[v34];
    const packed_float2 w36_0 = *(thread packed_float2*)(m0 + (0 * 2));
    const float v36 = w36_0[0];
    const float v37 = w36_0[1];
    float v38, v39;
    multiply_bfloat_float(&v38, &v39, v28, v30, v33, v35, v36, v37);
    *(thread packed_float2*)(m0 + (0 * 2)) = packed_float2(v38, v39);
  }
  const packed_float2 w40_0 = *(thread packed_float2*)(m0 + (0 * 2));
  const float v40 = w40_0[0];
  const float v41 = w40_0[1];
  const int v42 = (v16 + 1);
  p0[v16] = v40;
  p0[v42] = v41;
}
