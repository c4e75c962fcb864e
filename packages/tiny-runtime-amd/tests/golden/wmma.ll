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
  store <8 x float> zeroinitializer, ptr addrspace(5) %v13, align 4
  %v14 = shl i32 %v1, 10
  %v15 = shl i32 %v4, 3
  %v16 = add nsw i32 %v14, %v15
  %v17 = shl i32 %v7, 6
  %v18 = add nsw i32 %v16, %v17
  %v19 = add nsw i32 %v5, %v7
  %v20 = add nsw i32 %v19, %v10
  br label %loop21
loop21:
  %i21 = phi i32 [ 0, %start ], [ %next21, %loop21 ]
  %v22 = shl i32 %i21, 4
  %v23 = add nsw i32 %v18, %v22
  %v24 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v23
  %v25 = load half, ptr addrspace(1) %v24, align 2
  %v26 = add nsw i32 %v23, 1
  %v27 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v26
  %v28 = load half, ptr addrspace(1) %v27, align 2
  %v29 = add nsw i32 %v23, 2
  %v30 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v29
  %v31 = load half, ptr addrspace(1) %v30, align 2
  %v32 = add nsw i32 %v23, 3
  %v33 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v32
  %v34 = load half, ptr addrspace(1) %v33, align 2
  %v35 = add nsw i32 %v23, 4
  %v36 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v35
  %v37 = load half, ptr addrspace(1) %v36, align 2
  %v38 = add nsw i32 %v23, 5
  %v39 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v38
  %v40 = load half, ptr addrspace(1) %v39, align 2
  %v41 = add nsw i32 %v23, 6
  %v42 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v41
  %v43 = load half, ptr addrspace(1) %v42, align 2
  %v44 = add nsw i32 %v23, 7
  %v45 = getelementptr inbounds half, ptr addrspace(1) %p1, i32 %v44
  %v46 = load half, ptr addrspace(1) %v45, align 2
  %v47 = insertelement <8 x half> poison, half %v25, i32 0
  %v48 = insertelement <8 x half> %v47, half %v28, i32 1
  %v49 = insertelement <8 x half> %v48, half %v31, i32 2
  %v50 = insertelement <8 x half> %v49, half %v34, i32 3
  %v51 = insertelement <8 x half> %v50, half %v37, i32 4
  %v52 = insertelement <8 x half> %v51, half %v40, i32 5
  %v53 = insertelement <8 x half> %v52, half %v43, i32 6
  %v54 = insertelement <8 x half> %v53, half %v46, i32 7
  %v55 = shl i32 %i21, 9
  %v56 = add nsw i32 %v20, %v55
  %v57 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v56
  %v58 = load half, ptr addrspace(1) %v57, align 2
  %v59 = add nsw i32 %v56, 32
  %v60 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v59
  %v61 = load half, ptr addrspace(1) %v60, align 2
  %v62 = add nsw i32 %v56, 64
  %v63 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v62
  %v64 = load half, ptr addrspace(1) %v63, align 2
  %v65 = add nsw i32 %v56, 96
  %v66 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v65
  %v67 = load half, ptr addrspace(1) %v66, align 2
  %v68 = add nsw i32 %v56, 128
  %v69 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v68
  %v70 = load half, ptr addrspace(1) %v69, align 2
  %v71 = add nsw i32 %v56, 160
  %v72 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v71
  %v73 = load half, ptr addrspace(1) %v72, align 2
  %v74 = add nsw i32 %v56, 192
  %v75 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v74
  %v76 = load half, ptr addrspace(1) %v75, align 2
  %v77 = add nsw i32 %v56, 224
  %v78 = getelementptr inbounds half, ptr addrspace(1) %p2, i32 %v77
  %v79 = load half, ptr addrspace(1) %v78, align 2
  %v80 = insertelement <8 x half> poison, half %v58, i32 0
  %v81 = insertelement <8 x half> %v80, half %v61, i32 1
  %v82 = insertelement <8 x half> %v81, half %v64, i32 2
  %v83 = insertelement <8 x half> %v82, half %v67, i32 3
  %v84 = insertelement <8 x half> %v83, half %v70, i32 4
  %v85 = insertelement <8 x half> %v84, half %v73, i32 5
  %v86 = insertelement <8 x half> %v85, half %v76, i32 6
  %v87 = insertelement <8 x half> %v86, half %v79, i32 7
  %v88 = getelementptr inbounds <8 x float>, ptr addrspace(5) %m0, i32 0
  %v89 = load <8 x float>, ptr addrspace(5) %v88, align 4
  %v90 = call <8 x float> @llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v8f16(<8 x half> %v54, <8 x half> %v87, <8 x float> %v89)
  %v92 = getelementptr inbounds <8 x float>, ptr addrspace(5) %m0, i32 0
  store <8 x float> %v90, ptr addrspace(5) %v92, align 4
  %next21 = add nsw i32 %i21, 1
  %v93 = icmp slt i32 %next21, 4
  br i1 %v93, label %loop21, label %done21
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
