; program elementwise for gfx1100
target triple = "amdgcn-amd-amdhsa"

define amdgpu_kernel void @elementwise(ptr addrspace(1) noalias %p0, ptr addrspace(1) noalias readonly %p1, ptr addrspace(1) noalias readonly %p2, ptr addrspace(1) noalias readonly %p3) #0 {
start:
  %v1 = call range(i32 0, 32) i32 @llvm.amdgcn.workitem.id.x()
  %v2 = shl i32 %v1, 2
  %v3 = call range(i32 0, 8) i32 @llvm.amdgcn.workgroup.id.x()
  %v4 = shl i32 %v3, 7
  %v5 = add nsw i32 %v2, %v4
  %v6 = getelementptr inbounds float, ptr addrspace(1) %p1, i32 %v5
  %v7 = load <4 x float>, ptr addrspace(1) %v6, align 4
  %v8 = getelementptr inbounds float, ptr addrspace(1) %p2, i32 %v5
  %v9 = load <4 x float>, ptr addrspace(1) %v8, align 4
  %v10 = getelementptr inbounds float, ptr addrspace(1) %p3, i32 %v5
  %v11 = load <4 x float>, ptr addrspace(1) %v10, align 4
  %v12 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v7, <4 x float> %v9, <4 x float> %v11)
  %v13 = call nsz <4 x float> @llvm.maximum.v4f32(<4 x float> %v12, <4 x float> zeroinitializer)
  %v15 = getelementptr inbounds float, ptr addrspace(1) %p0, i32 %v5
  store <4 x float> %v13, ptr addrspace(1) %v15, align 4
  ret void
}

declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare <4 x float> @llvm.maximum.v4f32(<4 x float>, <4 x float>)

attributes #0 = { nounwind "target-cpu"="gfx1100" "target-features"="+unaligned-access-mode" "uniform-work-group-size"="true" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" "amdgpu-flat-work-group-size"="32,32" }
attributes #1 = { alwaysinline nounwind "target-cpu"="gfx1100" "target-features"="+unaligned-access-mode" "uniform-work-group-size"="true" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" }

!0 = !{!"amdgpu-synchronize-as", !"local"}
