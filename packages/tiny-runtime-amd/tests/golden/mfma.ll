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
  store <4 x float> zeroinitializer, ptr addrspace(5) %v13, align 4
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
  %i22 = phi i32 [ 0, %start ], [ %next22, %loop22 ]
  %v23 = shl i32 %i22, 5
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
  %v56 = shl i32 %i22, 10
  %v57 = add nsw i32 %v21, %v56
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
  %v89 = getelementptr inbounds <4 x float>, ptr addrspace(5) %m0, i32 0
  %v90 = load <4 x float>, ptr addrspace(5) %v89, align 4
  %v91 = call <4 x float> @llvm.amdgcn.mfma.f32.16x16x32.f16(<8 x half> %v55, <8 x half> %v88, <4 x float> %v90, i32 0, i32 0, i32 0)
  %v93 = getelementptr inbounds <4 x float>, ptr addrspace(5) %m0, i32 0
  store <4 x float> %v91, ptr addrspace(5) %v93, align 4
  %next22 = add nsw i32 %i22, 1
  %v94 = icmp slt i32 %next22, 2
  br i1 %v94, label %loop22, label %done22
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
