; program matmul for gfx950
target triple = "amdgcn-amd-amdhsa"

define amdgpu_kernel void @matmul(ptr addrspace(1) noalias %p0, ptr addrspace(1) noalias readonly %p1, ptr addrspace(1) noalias readonly %p2) #0 {
start:
  %m0 = alloca [1 x <4 x float>], align 16, addrspace(5)
  %v1 = call range(i32 0, 2) i32 @llvm.amdgcn.workgroup.id.x()
  %v2 = shl i32 %v1, 9
  %v3 = call range(i32 0, 2) i32 @llvm.amdgcn.workgroup.id.y()
  %v4 = shl i32 %v3, 4
  %v5 = add nsw i32 %v2, %v4
  %v6 = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %v7 = ashr i32 %v6, 4
  %v8 = shl i32 %v7, 7
  %v9 = add nsw i32 %v5, %v8
  %v10 = and i32 %v6, 15
  %v11 = add nsw i32 %v9, %v10
  %v13 = getelementptr inbounds <4 x float>, ptr addrspace(5) %m0, i32 0
  store <4 x float> <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, ptr addrspace(5) %v13, align 4
  %v14 = shl i32 %v1, 10
  %v15 = shl i32 %v7, 3
  %v16 = add nsw i32 %v14, %v15
  %v17 = shl i32 %v10, 6
  %v18 = add nsw i32 %v16, %v17
  %v19 = shl i32 %v7, 8
  %v20 = add nsw i32 %v4, %v19
  %v21 = add nsw i32 %v20, %v10
  br label %loop22
loop22:
  %i22 = phi i32 [ 0, %start ], [ %next22, %latch22 ]
  %v23 = icmp slt i32 %i22, 2
  br i1 %v23, label %body22, label %done22
body22:
  %v24 = shl i32 %i22, 5
  %v25 = add nsw i32 %v18, %v24
  %v26 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v25
  %v27 = load half, ptr addrspace(1) %v26, align 2
  %v28 = add nsw i32 %v25, 1
  %v29 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v28
  %v30 = load half, ptr addrspace(1) %v29, align 2
  %v31 = add nsw i32 %v25, 2
  %v32 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v31
  %v33 = load half, ptr addrspace(1) %v32, align 2
  %v34 = add nsw i32 %v25, 3
  %v35 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v34
  %v36 = load half, ptr addrspace(1) %v35, align 2
  %v37 = add nsw i32 %v25, 4
  %v38 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v37
  %v39 = load half, ptr addrspace(1) %v38, align 2
  %v40 = add nsw i32 %v25, 5
  %v41 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v40
  %v42 = load half, ptr addrspace(1) %v41, align 2
  %v43 = add nsw i32 %v25, 6
  %v44 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v43
  %v45 = load half, ptr addrspace(1) %v44, align 2
  %v46 = add nsw i32 %v25, 7
  %v47 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v46
  %v48 = load half, ptr addrspace(1) %v47, align 2
  %v49 = insertelement <8 x half> poison, half %v27, i32 0
  %v50 = insertelement <8 x half> %v49, half %v30, i32 1
  %v51 = insertelement <8 x half> %v50, half %v33, i32 2
  %v52 = insertelement <8 x half> %v51, half %v36, i32 3
  %v53 = insertelement <8 x half> %v52, half %v39, i32 4
  %v54 = insertelement <8 x half> %v53, half %v42, i32 5
  %v55 = insertelement <8 x half> %v54, half %v45, i32 6
  %v56 = insertelement <8 x half> %v55, half %v48, i32 7
  %v57 = shl i32 %i22, 10
  %v58 = add nsw i32 %v21, %v57
  %v59 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v58
  %v60 = load half, ptr addrspace(1) %v59, align 2
  %v61 = add nsw i32 %v58, 32
  %v62 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v61
  %v63 = load half, ptr addrspace(1) %v62, align 2
  %v64 = add nsw i32 %v58, 64
  %v65 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v64
  %v66 = load half, ptr addrspace(1) %v65, align 2
  %v67 = add nsw i32 %v58, 96
  %v68 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v67
  %v69 = load half, ptr addrspace(1) %v68, align 2
  %v70 = add nsw i32 %v58, 128
  %v71 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v70
  %v72 = load half, ptr addrspace(1) %v71, align 2
  %v73 = add nsw i32 %v58, 160
  %v74 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v73
  %v75 = load half, ptr addrspace(1) %v74, align 2
  %v76 = add nsw i32 %v58, 192
  %v77 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v76
  %v78 = load half, ptr addrspace(1) %v77, align 2
  %v79 = add nsw i32 %v58, 224
  %v80 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v79
  %v81 = load half, ptr addrspace(1) %v80, align 2
  %v82 = insertelement <8 x half> poison, half %v60, i32 0
  %v83 = insertelement <8 x half> %v82, half %v63, i32 1
  %v84 = insertelement <8 x half> %v83, half %v66, i32 2
  %v85 = insertelement <8 x half> %v84, half %v69, i32 3
  %v86 = insertelement <8 x half> %v85, half %v72, i32 4
  %v87 = insertelement <8 x half> %v86, half %v75, i32 5
  %v88 = insertelement <8 x half> %v87, half %v78, i32 6
  %v89 = insertelement <8 x half> %v88, half %v81, i32 7
  %v90 = getelementptr inbounds <4 x float>, ptr addrspace(5) %m0, i32 0
  %v91 = load <4 x float>, ptr addrspace(5) %v90, align 4
  %v92 = call <4 x float> @llvm.amdgcn.mfma.f32.16x16x32.f16(<8 x half> %v56, <8 x half> %v89, <4 x float> %v91, i32 0, i32 0, i32 0)
  %v94 = getelementptr inbounds <4 x float>, ptr addrspace(5) %m0, i32 0
  store <4 x float> %v92, ptr addrspace(5) %v94, align 4
  br label %latch22
latch22:
  %next22 = add nsw i32 %i22, 1
  br label %loop22
done22:
  %v95 = getelementptr inbounds <4 x float>, ptr addrspace(5) %m0, i32 0
  %v96 = load <4 x float>, ptr addrspace(5) %v95, align 4
  %v97 = extractelement <4 x float> %v96, i32 0
  %v98 = add nsw i32 %v11, 32
  %v99 = extractelement <4 x float> %v96, i32 1
  %v100 = add nsw i32 %v11, 64
  %v101 = extractelement <4 x float> %v96, i32 2
  %v102 = add nsw i32 %v11, 96
  %v103 = extractelement <4 x float> %v96, i32 3
  %v105 = getelementptr inbounds float, ptr addrspace(1) %p0, i32 %v11
  store float %v97, ptr addrspace(1) %v105, align 4
  %v107 = getelementptr inbounds float, ptr addrspace(1) %p0, i32 %v98
  store float %v99, ptr addrspace(1) %v107, align 4
  %v109 = getelementptr inbounds float, ptr addrspace(1) %p0, i32 %v100
  store float %v101, ptr addrspace(1) %v109, align 4
  %v111 = getelementptr inbounds float, ptr addrspace(1) %p0, i32 %v102
  store float %v103, ptr addrspace(1) %v111, align 4
  ret void
}

declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.workgroup.id.y()
declare i32 @llvm.amdgcn.workitem.id.x()
declare <4 x float> @llvm.amdgcn.mfma.f32.16x16x32.f16(<8 x half>, <8 x half>, <4 x float>, i32, i32, i32)

attributes #0 = { nounwind "target-cpu"="gfx950" "target-features"="+unaligned-access-mode" "uniform-work-group-size"="true" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" "amdgpu-flat-work-group-size"="64,64" }
attributes #1 = { alwaysinline nounwind "target-cpu"="gfx950" "target-features"="+unaligned-access-mode" "uniform-work-group-size"="true" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" }

!0 = !{!"amdgpu-synchronize-as", !"local"}
