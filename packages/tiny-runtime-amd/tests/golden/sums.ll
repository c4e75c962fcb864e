; program sums for gfx942
target triple = "amdgcn-amd-amdhsa"

define amdgpu_kernel void @sums(ptr addrspace(1) noalias %p0, ptr addrspace(1) noalias readonly %p1) #0 {
start:
  %m0 = alloca [1 x float], align 16, addrspace(5)
  %v1 = call range(i32 0, 4) i32 @llvm.amdgcn.workgroup.id.x()
  %v2 = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %v3 = icmp eq i32 %v2, 0
  %v5 = getelementptr inbounds float, ptr addrspace(5) %m0, i32 0
  store float 0x0000000000000000, ptr addrspace(5) %v5, align 4
  %v6 = shl i32 %v1, 8
  %v7 = add nsw i32 %v6, %v2
  br label %loop8
loop8:
  %i8 = phi i32 [ 0, %start ], [ %next8, %loop8 ]
  %v9 = getelementptr inbounds float, ptr addrspace(5) %m0, i32 0
  %v10 = load float, ptr addrspace(5) %v9, align 4
  %v11 = shl i32 %i8, 6
  %v12 = add nsw i32 %v7, %v11
  %v13 = getelementptr inbounds float, ptr addrspace(1) %p1, i32 %v12
  %v14 = load float, ptr addrspace(1) %v13, align 4
  %v15 = fadd float %v10, %v14
  %v17 = getelementptr inbounds float, ptr addrspace(5) %m0, i32 0
  store float %v15, ptr addrspace(5) %v17, align 4
  %next8 = add nsw i32 %i8, 1
  %v18 = icmp slt i32 %next8, 4
  br i1 %v18, label %loop8, label %done8
done8:
  %v19 = getelementptr inbounds float, ptr addrspace(5) %m0, i32 0
  %v20 = load float, ptr addrspace(5) %v19, align 4
  %v21 = bitcast float %v20 to i32
  %v22 = call i32 @llvm.amdgcn.update.dpp.i32(i32 %v21, i32 %v21, i32 177, i32 15, i32 15, i1 true)
  %v23 = bitcast i32 %v22 to float
  %v24 = fadd float %v20, %v23
  %v25 = bitcast float %v24 to i32
  %v26 = call i32 @llvm.amdgcn.update.dpp.i32(i32 %v25, i32 %v25, i32 78, i32 15, i32 15, i1 true)
  %v27 = bitcast i32 %v26 to float
  %v28 = fadd float %v24, %v27
  %v29 = bitcast float %v28 to i32
  %v30 = call i32 @llvm.amdgcn.ds.swizzle(i32 %v29, i32 4127)
  %v31 = bitcast i32 %v30 to float
  %v32 = fadd float %v28, %v31
  %v33 = bitcast float %v32 to i32
  %v34 = call i32 @llvm.amdgcn.update.dpp.i32(i32 %v33, i32 %v33, i32 296, i32 15, i32 15, i1 true)
  %v35 = bitcast i32 %v34 to float
  %v36 = fadd float %v32, %v35
  %v37 = bitcast float %v36 to i32
  %v38 = call i32 @llvm.amdgcn.ds.swizzle(i32 %v37, i32 16415)
  %v39 = bitcast i32 %v38 to float
  %v40 = fadd float %v36, %v39
  %v41 = bitcast float %v40 to i32
  %v42 = call i32 @llvm.amdgcn.mbcnt.lo(i32 -1, i32 32)
  %v43 = call i32 @llvm.amdgcn.mbcnt.hi(i32 -1, i32 %v42)
  %v44 = shl i32 %v43, 2
  %v45 = call i32 @llvm.amdgcn.ds.bpermute(i32 %v44, i32 %v41)
  %v46 = bitcast i32 %v45 to float
  %v47 = fadd float %v40, %v46
  br i1 %v3, label %if48, label %fi48
if48:
  br i1 %v3, label %then49, label %join49
then49:
  %v50 = getelementptr inbounds float, ptr addrspace(1) %p0, i32 %v1
  store float %v47, ptr addrspace(1) %v50, align 4
  br label %join49
join49:
  br label %fi48
fi48:
  ret void
}

declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.workitem.id.x()

attributes #0 = { nounwind "target-cpu"="gfx942" "target-features"="+unaligned-access-mode" "uniform-work-group-size"="true" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" "amdgpu-flat-work-group-size"="64,64" }
attributes #1 = { alwaysinline nounwind "target-cpu"="gfx942" "target-features"="+unaligned-access-mode" "uniform-work-group-size"="true" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" }

!0 = !{!"amdgpu-synchronize-as", !"local"}
