#include <metal_stdlib>
#include <metal_simdgroup_matrix>
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
using namespace metal;
static void multiply_half_float(thread float* d0, thread float* d1, half a0, half a1, half b0, half b1, float c0, float c1) {
  simdgroup_matrix<half, 8, 8> a, b;
  simdgroup_matrix<float, 8, 8> c;
  a.thread_elements() = vec<half, 2>(a0, a1);
  b.thread_elements() = vec<half, 2>(b0, b1);
  c.thread_elements() = vec<float, 2>(c0, c1);
  simdgroup_multiply_accumulate(c, a, b, c);
  *d0 = c.thread_elements()[0];
  *d1 = c.thread_elements()[1];
}

[[max_total_threads_per_threadgroup(32)]] kernel void tiny_matmul(device half* p0 [[buffer(0)]], device const half* p1 [[buffer(1)]], device const half* p2 [[buffer(2)]], uint3 gid [[threadgroup_position_in_grid]], uint3 lid [[thread_position_in_threadgroup]]) {
  const int lidx0 = lid.x;
  const int v0 = (lidx0 & 1);
  const int v1 = (v0 << 1);
  const int gidx0 = gid.x;
  const int v2 = (gidx0 << 7);
  const int v3 = (v1 + v2);
  const int v4 = (int)(lidx0 >> 4);
  const int v5 = (v4 << 6);
  const int v6 = (v3 + v5);
  const int gidx1 = gid.y;
  const int v7 = (gidx1 << 3);
  const int v8 = (v6 + v7);
  const int v9 = (int)(lidx0 >> 1);
  const int v10 = (v9 & 3);
  const int v11 = (v10 << 4);
  const int v12 = (v8 + v11);
  const int v13 = (int)(lidx0 >> 3);
  const int v14 = (v13 & 1);
  const int v15 = (v14 << 2);
  const int v16 = (v12 + v15);
  const int v17 = (gidx0 << 1);
  const int v18 = (v17 + v4);
  const bool v19 = (v18 < 3);
  const int v20 = (gidx0 << 6);
  const int v21 = (v1 + v20);
  const int v22 = (v4 << 5);
  const int v23 = (v21 + v22);
  const int v24 = (v10 << 3);
  const int v25 = (v23 + v24);
  const int v26 = (v25 + v15);
  const int v27 = (v19 ? v26 : 0);
  const half v28 = p1[v27];
  const half v29 = (v19 ? v28 : ((half)0x0.0p+0f));
  const int v30 = (v26 + 1);
  const int v31 = (v19 ? v30 : 0);
  const half v32 = p1[v31];
  const half v33 = (v19 ? v32 : ((half)0x0.0p+0f));
  const int v34 = (v1 + v5);
  const int v35 = (v34 + v7);
  const int v36 = (v35 + v11);
  const int v37 = (v36 + v15);
  const half v38 = p2[v37];
  const int v39 = (v37 + 1);
  const half v40 = p2[v39];
  float v41, v42;
  multiply_half_float(&v41, &v42, v29, v33, v38, v40, 0x0.0p+0f, 0x0.0p+0f);
  const half v43 = (half)v41;
  const int v44 = (v16 + 1);
  const half v45 = (half)v42;
  if (v19) {
    p0[v16] = v43;
    p0[v44] = v45;
  }
}
