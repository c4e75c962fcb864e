; program sums for gfx942
target triple = "amdgcn-amd-amdhsa"

@sums.local0 = internal addrspace(3) global [64 x float] poison, align 64
define amdgpu_kernel void @sums(ptr addrspace(1) noalias %p0, ptr addrspace(1) noalias readonly %p1) #0 {
start:
  %m2 = alloca [1 x float], align 16, addrspace(5)
  %m1 = alloca [1 x float], align 16, addrspace(5)
  %v1 = call range(i32 0, 4) i32 @llvm.amdgcn.workgroup.id.x()
  %v2 = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %v3 = icmp eq i32 %v2, 0
  %v5 = getelementptr inbounds float, ptr addrspace(5) %m2, i32 0
  store float 0x0000000000000000, ptr addrspace(5) %v5, align 4
  %v7 = getelementptr inbounds float, ptr addrspace(5) %m1, i32 0
  store float 0x0000000000000000, ptr addrspace(5) %v7, align 4
  %v8 = shl i32 %v1, 8
  %v9 = add nsw i32 %v8, %v2
  br label %loop10
loop10:
  %i10 = phi i32 [ 0, %start ], [ %next10, %latch10 ]
  %v11 = icmp slt i32 %i10, 4
  br i1 %v11, label %body10, label %done10
body10:
  %v12 = getelementptr inbounds float, ptr addrspace(5) %m1, i32 0
  %v13 = load float, ptr addrspace(5) %v12, align 4
  %v14 = shl i32 %i10, 6
  %v15 = add nsw i32 %v9, %v14
  %v16 = getelementptr inbounds float, ptr addrspace(1) %p1, i32 %v15
  %v17 = load float, ptr addrspace(1) %v16, align 4
  %v18 = fadd float %v13, %v17
  %v20 = getelementptr inbounds float, ptr addrspace(5) %m1, i32 0
  store float %v18, ptr addrspace(5) %v20, align 4
  br label %latch10
latch10:
  %next10 = add nsw i32 %i10, 1
  br label %loop10
done10:
  %v21 = getelementptr inbounds float, ptr addrspace(5) %m1, i32 0
  %v22 = load float, ptr addrspace(5) %v21, align 4
  %v24 = getelementptr inbounds float, ptr addrspace(3) @sums.local0, i32 %v2
  store float %v22, ptr addrspace(3) %v24, align 4
  fence syncscope("workgroup") release, !mmra !0
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire, !mmra !0
  br label %loop25
loop25:
  %i25 = phi i32 [ 0, %done10 ], [ %next25, %latch25 ]
  %v26 = icmp slt i32 %i25, 64
  br i1 %v26, label %body25, label %done25
body25:
  %v27 = getelementptr inbounds float, ptr addrspace(5) %m2, i32 0
  %v28 = load float, ptr addrspace(5) %v27, align 4
  %v29 = getelementptr inbounds float, ptr addrspace(3) @sums.local0, i32 %i25
  %v30 = load float, ptr addrspace(3) %v29, align 4
  %v31 = fadd float %v28, %v30
  %v33 = getelementptr inbounds float, ptr addrspace(5) %m2, i32 0
  store float %v31, ptr addrspace(5) %v33, align 4
  br label %latch25
latch25:
  %next25 = add nsw i32 %i25, 1
  br label %loop25
done25:
  %v34 = getelementptr inbounds float, ptr addrspace(5) %m2, i32 0
  %v35 = load float, ptr addrspace(5) %v34, align 4
  br i1 %v3, label %if36, label %fi36
if36:
  br i1 %v3, label %then37, label %join37
then37:
  %v38 = getelementptr inbounds float, ptr addrspace(1) %p0, i32 %v1
  store float %v35, ptr addrspace(1) %v38, align 4
  br label %join37
join37:
  br label %fi36
fi36:
  ret void
}

declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.workitem.id.x()

attributes #0 = { nounwind "target-cpu"="gfx942" "target-features"="+unaligned-access-mode" "uniform-work-group-size"="true" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" "amdgpu-flat-work-group-size"="64,64" }
attributes #1 = { alwaysinline nounwind "target-cpu"="gfx942" "target-features"="+unaligned-access-mode" "uniform-work-group-size"="true" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" }

!0 = !{!"amdgpu-synchronize-as", !"local"}
