; program matmul for gfx1201
target triple = "amdgcn-amd-amdhsa"

define amdgpu_kernel void @matmul(ptr addrspace(1) noalias %p0, ptr addrspace(1) noalias readonly %p1, ptr addrspace(1) noalias readonly %p2) #0 {
start:
  %m0 = alloca [1 x <8 x float>], align 32, addrspace(5)
  %v1 = call range(i32 0, 2) i32 @llvm.amdgcn.workgroup.id.x()
  %v2 = shl i32 %v1, 9
  %v3 = call range(i32 0, 32) i32 @llvm.amdgcn.workitem.id.x()
  %v4 = ashr i32 %v3, 4
  %v5 = shl i32 %v4, 8
  %v6 = add nsw i32 %v2, %v5
  %v7 = and i32 %v3, 15
  %v8 = add nsw i32 %v6, %v7
  %v9 = call range(i32 0, 2) i32 @llvm.amdgcn.workgroup.id.y()
  %v10 = shl i32 %v9, 4
  %v11 = add nsw i32 %v8, %v10
  %v13 = getelementptr inbounds <8 x float>, ptr addrspace(5) %m0, i32 0
  store <8 x float> <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, ptr addrspace(5) %v13, align 4
  %v14 = shl i32 %v1, 10
  %v15 = shl i32 %v4, 3
  %v16 = add nsw i32 %v14, %v15
  %v17 = shl i32 %v7, 6
  %v18 = add nsw i32 %v16, %v17
  %v19 = add nsw i32 %v5, %v7
  %v20 = add nsw i32 %v19, %v10
  br label %loop21
loop21:
  %i21 = phi i32 [ 0, %start ], [ %next21, %latch21 ]
  %v22 = icmp slt i32 %i21, 4
  br i1 %v22, label %body21, label %done21
body21:
  %v23 = shl i32 %i21, 4
  %v24 = add nsw i32 %v18, %v23
  %v25 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v24
  %v26 = load half, ptr addrspace(1) %v25, align 2
  %v27 = add nsw i32 %v24, 1
  %v28 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v27
  %v29 = load half, ptr addrspace(1) %v28, align 2
  %v30 = add nsw i32 %v24, 2
  %v31 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v30
  %v32 = load half, ptr addrspace(1) %v31, align 2
  %v33 = add nsw i32 %v24, 3
  %v34 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v33
  %v35 = load half, ptr addrspace(1) %v34, align 2
  %v36 = add nsw i32 %v24, 4
  %v37 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v36
  %v38 = load half, ptr addrspace(1) %v37, align 2
  %v39 = add nsw i32 %v24, 5
  %v40 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v39
  %v41 = load half, ptr addrspace(1) %v40, align 2
  %v42 = add nsw i32 %v24, 6
  %v43 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v42
  %v44 = load half, ptr addrspace(1) %v43, align 2
  %v45 = add nsw i32 %v24, 7
  %v46 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v45
  %v47 = load half, ptr addrspace(1) %v46, align 2
  %v48 = insertelement <8 x half> poison, half %v26, i32 0
  %v49 = insertelement <8 x half> %v48, half %v29, i32 1
  %v50 = insertelement <8 x half> %v49, half %v32, i32 2
  %v51 = insertelement <8 x half> %v50, half %v35, i32 3
  %v52 = insertelement <8 x half> %v51, half %v38, i32 4
  %v53 = insertelement <8 x half> %v52, half %v41, i32 5
  %v54 = insertelement <8 x half> %v53, half %v44, i32 6
  %v55 = insertelement <8 x half> %v54, half %v47, i32 7
  %v56 = shl i32 %i21, 9
  %v57 = add nsw i32 %v20, %v56
  %v58 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v57
  %v59 = load half, ptr addrspace(1) %v58, align 2
  %v60 = add nsw i32 %v57, 32
  %v61 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v60
  %v62 = load half, ptr addrspace(1) %v61, align 2
  %v63 = add nsw i32 %v57, 64
  %v64 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v63
  %v65 = load half, ptr addrspace(1) %v64, align 2
  %v66 = add nsw i32 %v57, 96
  %v67 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v66
  %v68 = load half, ptr addrspace(1) %v67, align 2
  %v69 = add nsw i32 %v57, 128
  %v70 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v69
  %v71 = load half, ptr addrspace(1) %v70, align 2
  %v72 = add nsw i32 %v57, 160
  %v73 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v72
  %v74 = load half, ptr addrspace(1) %v73, align 2
  %v75 = add nsw i32 %v57, 192
  %v76 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v75
  %v77 = load half, ptr addrspace(1) %v76, align 2
  %v78 = add nsw i32 %v57, 224
  %v79 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v78
  %v80 = load half, ptr addrspace(1) %v79, align 2
  %v81 = insertelement <8 x half> poison, half %v59, i32 0
  %v82 = insertelement <8 x half> %v81, half %v62, i32 1
  %v83 = insertelement <8 x half> %v82, half %v65, i32 2
  %v84 = insertelement <8 x half> %v83, half %v68, i32 3
  %v85 = insertelement <8 x half> %v84, half %v71, i32 4
  %v86 = insertelement <8 x half> %v85, half %v74, i32 5
  %v87 = insertelement <8 x half> %v86, half %v77, i32 6
  %v88 = insertelement <8 x half> %v87, half %v80, i32 7
  %v89 = getelementptr inbounds <8 x float>, ptr addrspace(5) %m0, i32 0
  %v90 = load <8 x float>, ptr addrspace(5) %v89, align 4
  %v91 = call <8 x float> @llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v8f16(<8 x half> %v55, <8 x half> %v88, <8 x float> %v90)
  %v93 = getelementptr inbounds <8 x float>, ptr addrspace(5) %m0, i32 0
  store <8 x float> %v91, ptr addrspace(5) %v93, align 4
  br label %latch21
latch21:
  %next21 = add nsw i32 %i21, 1
  br label %loop21
done21:
  %v94 = getelementptr inbounds <8 x float>, ptr addrspace(5) %m0, i32 0
  %v95 = load <8 x float>, ptr addrspace(5) %v94, align 4
  %v96 = extractelement <8 x float> %v95, i32 0
  %v97 = add nsw i32 %v11, 32
  %v98 = extractelement <8 x float> %v95, i32 1
  %v99 = add nsw i32 %v11, 64
  %v100 = extractelement <8 x float> %v95, i32 2
  %v101 = add nsw i32 %v11, 96
  %v102 = extractelement <8 x float> %v95, i32 3
  %v103 = add nsw i32 %v11, 128
  %v104 = extractelement <8 x float> %v95, i32 4
  %v105 = add nsw i32 %v11, 160
  %v106 = extractelement <8 x float> %v95, i32 5
  %v107 = add nsw i32 %v11, 192
  %v108 = extractelement <8 x float> %v95, i32 6
  %v109 = add nsw i32 %v11, 224
  %v110 = extractelement <8 x float> %v95, i32 7
  %v112 = getelementptr inbounds float, ptr addrspace(1) %p0, i32 %v11
  store float %v96, ptr addrspace(1) %v112, align 4
  %v114 = getelementptr inbounds float, ptr addrspace(1) %p0, i32 %v97
  store float %v98, ptr addrspace(1) %v114, align 4
  %v116 = getelementptr inbounds float, ptr addrspace(1) %p0, i32 %v99
  store float %v100, ptr addrspace(1) %v116, align 4
  %v118 = getelementptr inbounds float, ptr addrspace(1) %p0, i32 %v101
  store float %v102, ptr addrspace(1) %v118, align 4
  %v120 = getelementptr inbounds float, ptr addrspace(1) %p0, i32 %v103
  store float %v104, ptr addrspace(1) %v120, align 4
  %v122 = getelementptr inbounds float, ptr addrspace(1) %p0, i32 %v105
  store float %v106, ptr addrspace(1) %v122, align 4
  %v124 = getelementptr inbounds float, ptr addrspace(1) %p0, i32 %v107
  store float %v108, ptr addrspace(1) %v124, align 4
  %v126 = getelementptr inbounds float, ptr addrspace(1) %p0, i32 %v109
  store float %v110, ptr addrspace(1) %v126, align 4
  ret void
}

declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.y()
declare <8 x float> @llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v8f16(<8 x half>, <8 x half>, <8 x float>)

attributes #0 = { nounwind "target-cpu"="gfx1201" "target-features"="+unaligned-access-mode" "uniform-work-group-size"="true" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" "amdgpu-flat-work-group-size"="32,32" }
attributes #1 = { alwaysinline nounwind "target-cpu"="gfx1201" "target-features"="+unaligned-access-mode" "uniform-work-group-size"="true" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" }

!0 = !{!"amdgpu-synchronize-as", !"local"}
